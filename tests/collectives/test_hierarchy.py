"""Collectives within machines and across them, against the same in one, in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from collectives import Group
from collectives.operations.calls import CollectiveCall, on_arrays
from collectives.operations.hierarchy import Grid, in_hierarchy
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.exchange import Exchange
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.transport.in_process import InProcessTransport
from collectives.windows import MemberWindows

Array = npt.NDArray[Any]


def members(hosts: str) -> list[Group]:
    """A rank on the machine of each letter."""
    return [Group(each) for each in InProcessTransport.all_of(len(hosts), tuple(hosts))]


def test_a_grid_has_as_many_members_on_each_machine() -> None:
    assert Grid.of("aabb") == Grid(2, 2, True)
    assert Grid.of("bbbaaaccc") == Grid(3, 3, True)
    assert Grid.of("abab") == Grid(2, 2, False)
    assert Grid.of("abcabc") == Grid(3, 2, False)
    for hosts in ("a", "aaaa", "ab", "aab", "abba", "aabbab", "aabbaabb", "aaab"):
        assert Grid.of(hosts) is None


@pytest.mark.parametrize("seed", range(60))
def test_results_are_those_of_one_collective(seed: int) -> None:
    random = np.random.default_rng(seed)
    machines, inside = (int(each) for each in random.integers(2, 5, 2))
    names = [chr(ord("a") + machine) for machine in range(machines)]
    by_machine = "".join(name * inside for name in names)
    groups = members(by_machine if seed % 2 else "".join(names) * inside)
    size = machines * inside
    shape = [int(each) for each in random.integers(1, 4, random.integers(1, 4))]
    cut, joined = (int(each) for each in random.integers(len(shape), size=2))
    reducer = str(random.choice(["sum", "max", "min", "prod"]))
    dtype = str(random.choice(["float32", "float64", "int32", "int8", "bool", "complex64"]))
    if dtype == "complex64":
        reducer = "sum"
    collectives: list[Collective] = [
        Allreduce(reducer),
        Allgather(joined),
        Allgather(-1),
        ReduceScatter(cut, reducer),
        Alltoall(cut, joined),
    ]
    for collective in collectives:
        given = list(shape)
        if isinstance(collective, (Alltoall, ReduceScatter)):
            given[cut] *= size
        arrays: list[Array] = [random.integers(0, 3, given).astype(dtype) for _ in groups]
        parts = in_hierarchy(collective, groups, given)
        assert parts is not None
        found = on_arrays(arrays, [part.call for part in parts])
        for got, truth in zip(
            found, on_arrays(arrays, [CollectiveCall(collective, tuple(groups))]), strict=True
        ):
            assert got.dtype == truth.dtype
            assert got.shape == truth.shape == parts[-1].shape
            np.testing.assert_array_equal(got, truth)


def test_scalars_and_what_has_no_parts() -> None:
    groups = members("aabb")
    parts = in_hierarchy(Allreduce(), groups, [])
    assert parts is not None
    found = on_arrays([np.array(float(rank)) for rank in range(4)], [part.call for part in parts])
    assert [each.shape for each in found] == [()] * 4
    assert [float(each) for each in found] == [6.0] * 4
    windows = MemberWindows((0, 2, 4, 6), 2, 2)
    for collective, shape in (
        (Exchange(0, windows), [2]),
        (Allreduce(), [0, 4]),
        (Allreduce(), [None, 4]),
        (ReduceScatter(0), [6]),
        (Alltoall(0, 0), [6]),
    ):
        assert in_hierarchy(collective, groups, shape) is None
    assert in_hierarchy(Allreduce(), members("aaaa"), [4]) is None


def test_a_machine_sends_as_much_as_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the bytes that the ranks of a machine give to collectives across machines."""
    given = {"a": 0, "b": 0}
    start = InProcessTransport._start

    def counted(self: InProcessTransport, send: Any, receive: Any, deliver: Any) -> None:
        if len(set(self.hosts)) > 1:
            blocks = send if isinstance(send, list) else [send]
            others = [
                block.nbytes
                for place, block in enumerate(blocks)
                if not isinstance(send, list) or self.hosts[place] != self.hosts[self.rank]
            ]
            given[self.hosts[self.rank]] += sum(others)
        start(self, send, receive, deliver)

    monkeypatch.setattr(InProcessTransport, "_start", counted)
    kib = 1024
    for collective, in_one, in_parts in (
        (Allreduce(), 4 * kib, kib),
        (ReduceScatter(0), 4 * kib, kib),
        (Allgather(0), 4 * kib, 4 * kib),
        (Alltoall(0, 0), 2 * kib, 2 * kib),
    ):
        groups = members("aaaabbbb")
        arrays = [np.ones(kib // 4, np.float32)] * 8
        parts = in_hierarchy(collective, groups, [kib // 4])
        assert parts is not None
        for stages, expected in (
            ([CollectiveCall(collective, tuple(groups))], in_one),
            ([part.call for part in parts], in_parts),
        ):
            given.update(a=0, b=0)
            on_arrays(arrays, stages)
            assert given == {"a": expected, "b": expected}
