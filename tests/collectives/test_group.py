"""Groups of one process, and the rules that every group checks before any byte travels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collectives
from collectives.transport.in_process import InProcessTransport
from collectives.windows import MemberWindows


@pytest.fixture
def pair() -> collectives.Group:
    """Position 0 of two. The tests stop before a byte has to travel."""
    return collectives.Group(InProcessTransport((0, 1)))


@pytest.fixture
def one() -> collectives.Group:
    return collectives.Group(InProcessTransport())


def test_the_world_of_a_process_started_by_itself_is_that_process() -> None:
    world = collectives.world()
    assert (world.ranks, world.rank, world.size) == ((0,), 0, 1)
    assert (world.local_rank(), world.local_size()) == (0, 1)
    assert world.hosts == (world.host,)
    assert repr(world) == "Group(0)"
    assert world.subgroup([0]).ranks == (0,)
    world.barrier()


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "complex64", ml_dtypes.bfloat16])
def test_collectives_of_one_process_are_fresh_copies(one: collectives.Group, dtype: Any) -> None:
    array = (np.arange(12).reshape(3, 4) % 5).astype(dtype).T
    results = [
        one.allreduce(array),
        one.allgather(array, 1),
        one.reduce_scatter(array, -1),
        one.alltoall(array, 0, 1),
        one.broadcast(array),
        one.exchange(array, 0, [0], 4),
        one.exchange_sum(array, -1, [0], 3),
    ]
    for result in results:
        np.testing.assert_array_equal(result, array)
        assert result.dtype == array.dtype
        assert result.flags.c_contiguous
        assert result.ctypes.data % 64 == 0
        assert not np.shares_memory(result, array)


def test_a_scalar_stays_a_scalar(one: collectives.Group) -> None:
    assert one.allreduce(np.array(3.0)).shape == ()
    assert one.broadcast(np.array(3.0)).shape == ()


def test_objects_travel_as_json_even_on_one_process(one: collectives.Group) -> None:
    assert one.allgather_object({"a": (1, "é"), 2: None}) == [{"a": [1, "é"], "2": None}]
    with pytest.raises(TypeError, match="JSON"):
        one.allgather_object({1, 2})


@pytest.mark.parametrize("ranks", [[], [0, 0], [0, 2]])
def test_a_group_has_different_ranks_of_its_parent(
    pair: collectives.Group, ranks: list[int]
) -> None:
    with pytest.raises(collectives.GroupError, match="different ranks"):
        pair.subgroup(ranks)


def test_only_members_make_a_group(pair: collectives.Group) -> None:
    with pytest.raises(collectives.GroupError, match="on rank 0: let its members"):
        pair.subgroup([1])


def test_a_partition_is_complete_and_even(pair: collectives.Group) -> None:
    with pytest.raises(collectives.GroupError, match="every rank"):
        pair.split([[0]])
    with pytest.raises(collectives.GroupError, match="one of its groups"):
        pair.split([[0, 1], []])
    assert pair.split([[0], [1]]).ranks == (0,)


def test_dimensions_exist_and_divide(pair: collectives.Group) -> None:
    array = np.zeros((4, 3))
    with pytest.raises(collectives.ShapeError, match=r"size 3 of dimension 1 for 2 ranks: pad"):
        pair.reduce_scatter(array, 1)
    with pytest.raises(collectives.ShapeError, match="size 3 of dimension 1"):
        pair.alltoall(array, -1, 0)
    for wrong in (2, -3):
        with pytest.raises(collectives.ShapeError, match=rf"\[-2, 2\). Got {wrong}"):
            pair.allgather(array, wrong)
    with pytest.raises(collectives.ShapeError, match="0 dimensions"):
        pair.allgather(np.array(1.0))
    with pytest.raises(collectives.GroupError, match=r"from 0 to 1\. Got 2"):
        pair.broadcast(array, 2)


def test_a_window_per_member(pair: collectives.Group) -> None:
    with pytest.raises(collectives.ShapeError, match="Got 1 starts for 2 ranks"):
        pair.exchange(np.zeros((4, 3)), 0, [0], 4)
    with pytest.raises(collectives.ShapeError, match="Got a length of -1"):
        pair.exchange(np.zeros((4, 3)), 0, [0, 0], -1)
    with pytest.raises(collectives.ShapeError, match="extent of -2"):
        pair.exchange_sum(np.zeros((4, 3)), 0, [0, 0], -2)


def test_windows_know_whose_elements_they_have() -> None:
    halo = MemberWindows((-5, -1, 3), 10, 4)
    inner = MemberWindows((1, 5, 9), 1, 4)
    assert [list(halo.overlap(2, shard)) for shard in range(3)] == [
        [3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert (halo.in_window(2, 1), halo.in_shard(2, 0)) == (slice(1, 5), slice(3, 4))
    assert [halo.outside(window) for window in range(3)] == [(5, 0), (1, 0), (0, 1)]
    assert halo.crosses
    assert not inner.crosses
    assert MemberWindows((-9, 12), 4, 5).outside(0) == (4, 0)
    assert MemberWindows((-9, 12), 4, 5).outside(1) == (0, 4)


def test_what_lies_beyond_the_ends_is_filled(one: collectives.Group) -> None:
    array = np.arange(1.0, 4.0)
    window = one.exchange(array, 0, [-2], 6, -np.inf)
    np.testing.assert_array_equal(window, [-np.inf, -np.inf, 1, 2, 3, -np.inf])
    np.testing.assert_array_equal(one.exchange_sum(window, 0, [-2], 3), array)
    np.testing.assert_array_equal(one.exchange(array, 0, [1], 1), [2])


def test_what_mpi_cannot_reduce_is_refused(pair: collectives.Group) -> None:
    with pytest.raises(collectives.ReducerError, match=r"sum, max, min, prod\. Got .mean."):
        pair.allreduce(np.zeros(2), "mean")
    with pytest.raises(collectives.DTypeError, match="max of complex64"):
        pair.allreduce(np.zeros(2, np.complex64), "max")
    with pytest.raises(collectives.DTypeError, match="sum of datetime64"):
        pair.reduce_scatter(np.zeros(2, "datetime64[s]"))


def test_objects_have_no_bytes_to_move(pair: collectives.Group) -> None:
    strings = np.array([b"a", b"bc"], object)
    for move in (pair.allgather, pair.broadcast, lambda array: pair.alltoall(array, 0, 0)):
        with pytest.raises(collectives.DTypeError, match="fixed size"):
            move(strings)


def test_using_groups_imports_neither_tensorflow_nor_mpi() -> None:
    program = (
        "import sys, numpy, collectives\n"
        "collectives.world().allreduce(numpy.ones(3))\n"
        "assert not {'tensorflow', 'mpi4py'} & set(sys.modules)\n"
        "assert set(collectives.__all__) <= set(dir(collectives))\n"
        "assert not hasattr(collectives, '__path_that_is_not__')\n"
        "collectives.world().abort(5)\n"
    )
    root = Path(collectives.__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", program], cwd=root, timeout=600, check=False)
    assert result.returncode == 5
