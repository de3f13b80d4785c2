"""The order of a pipeline's passes, and where operators of a step are."""

from __future__ import annotations

import numpy as np
import pytest

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.transfer import messages, spread
from tensoropt.transformations.staged.order_of_passes import (
    SCHEDULES,
    Pass,
    Schedule,
    in_flight,
    passes,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 1), (3, 2), (4, 8)])
def test_passes_come_after_those_that_they_need(
    schedule: Schedule, stages: int, microbatches: int
) -> None:
    order = passes(schedule, stages, microbatches)
    place = {each: number for number, each in enumerate(order)}
    assert len(place) == len(order) == 2 * stages * microbatches
    for each in order:
        forward, stage, microbatch = each
        if not forward:
            assert place[Pass(True, stage, microbatch)] < place[each]
        neighbour = stage - 1 if forward else stage + 1
        if 0 <= neighbour < stages:
            assert place[Pass(forward, neighbour, microbatch)] < place[each]
    for stage in range(stages):
        held = np.cumsum([1 if each.forward else -1 for each in order if each.stage == stage])
        assert held.max() == in_flight(schedule, stage, stages, microbatches)


def test_each_device_gets_the_slices_of_its_shard() -> None:
    source, target = Layout(((0,), ())), Layout(((), (0,)))
    found = messages((4, 6), source, Mesh((2, 2)), target, Mesh((2,)))
    assert [each.target for each in found] == [0, 0, 1, 1]
    assert [each.region for each in found[:2]] == [((0, 2), (0, 3)), ((2, 4), (0, 3))]
    # Devices 0 and 1 hold the first rows, 2 and 3 the others: they take turns.
    assert [each.source for each in found] == [0, 2, 1, 3]
    # What has no elements is sent, too.
    assert len(messages((0, 6), Layout(((), ())), Mesh((2,)), target, Mesh((2,)))) == 2


def test_what_is_replicated_arrives_in_parts() -> None:
    mesh = Mesh((2, 3, 2))
    wanted = Layout(((0,), ()))
    assert spread(wanted, (4, 6), mesh) == Layout(((0, 2), (1,)))
    assert spread(wanted, (4, 5), mesh) == Layout(((0, 2), ()))  # 3 divides neither
    assert spread(wanted, (4, 6), mesh, over=(1,)) == Layout(((0,), (1,)))
    assert spread(Layout(()), (), mesh) == Layout(())
    arriving = spread(wanted, (4, 6), mesh)
    found = messages((4, 6), Layout(((), ())), Mesh(()), arriving, mesh)
    assert sum((a[1] - a[0]) * (b[1] - b[0]) for a, b in (m.region for m in found)) == 4 * 6
