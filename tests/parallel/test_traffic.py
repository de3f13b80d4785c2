"""What steps traffic, followed from the piece that a device holds."""

from __future__ import annotations

import itertools

import pytest

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import (
    COLLECTIVE_KINDS,
    Exchange,
    StepTraffic,
    plan_reshard,
    step_bytes,
    step_traffic,
)
from tensoropt.parallel.resharding.step import ReshardStep

MESH, SHAPE = Mesh((2, 2, 3)), (12, 24)
SPLITS = ((), (0,), (1,), (2,), (0, 1), (1, 0), (0, 2), (2, 1))


def layouts() -> list[Layout]:
    """All that split two dimensions in these ways, some of them partial."""
    found = []
    for dims in itertools.product(SPLITS, SPLITS):
        if set(dims[0]) & set(dims[1]):
            continue
        found.append(Layout(dims))
        if not any(1 in axes for axes in dims):
            found.append(Layout(dims, partial=(1,)))
    return found


def test_every_step_moves_what_it_is_priced_by() -> None:
    kinds = set()
    for source, target in itertools.product(layouts()[::3], layouts()[::5]):
        steps = plan_reshard(MESH, SHAPE, 4, source, target, lambda kind, axes, bytes_: bytes_ + 1)
        found = step_traffic(steps, MESH, source.local_shape(SHAPE, MESH), 4)
        assert [traffic[:3] for traffic in found] == [
            (step.kind, step.axes, step_bytes(step, MESH, SHAPE, 4)) for step in steps
        ]
        kinds |= {traffic.kind for traffic in found}
    assert kinds >= {"allgather", "allreduce", "alltoall", "slice"}
    assert kinds & set(COLLECTIVE_KINDS)


@pytest.mark.parametrize(
    ("dim", "itemsize", "runs"), [(0, 4, "whole"), (1, 4, "short"), (1, 256, "long")]
)
def test_pieces_that_are_joined_inside_a_tensor_are_copied_run_by_run(
    dim: int, itemsize: int, runs: str
) -> None:
    split = tuple((0,) if place == dim else () for place in range(2))
    step = ReshardStep("allgather", (0,), Layout(split), Layout(((), ())), from_dim=dim)
    (traffic,) = step_traffic([step], MESH, Layout(split).local_shape(SHAPE, MESH), itemsize)
    assert traffic == StepTraffic("allgather", (0,), 12 * 24 // 2 * itemsize, runs)


def test_an_exchange_sends_its_halo_and_copies_its_windows() -> None:
    there = Exchange((0,), 1, 12, (-1, 11), 14)
    sent, copied = 6 * 2 * 4, 6 * 14 * 4
    expected = (StepTraffic("exchange", (0,), sent, ""), StepTraffic("slice", (0,), copied, ""))
    assert step_traffic([there], MESH, (6, 12), 4) == expected
    assert step_traffic([there.adjoint], MESH, (6, 14), 4) == expected
