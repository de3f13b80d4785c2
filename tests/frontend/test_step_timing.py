"""The calls of a step on several ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collectives
from tensoropt.execution.world.mpi_world import Call
from tensoropt.frontend.measuring import step_timing
from tensoropt.frontend.measuring.step_timing import _of_groups, in_common_order, timed_step
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import StepTraffic

# Along axis 1, ranks 0 and 1 are on one machine and ranks 2 and 3 on two. A rank's timeline has
# collectives within machines first, then those across machines.
_GATHER = "inputs: float32[2] allgather 1"
_SUM = "gradient sum: float32[4] allreduce 0"


def test_calls_of_ranks_on_uneven_machines_match_by_record() -> None:
    on_one_machine = [_call(_GATHER, 3.0), _call(_GATHER, 8.0), _call(_SUM, 1.0)]
    on_two_machines = [_call(_SUM, 1.5), _call(_GATHER, 3.5), _call(_GATHER, 8.5)]
    pairs = list(
        zip(in_common_order(on_one_machine), in_common_order(on_two_machines), strict=True)
    )
    assert all(one.record == other.record for one, other in pairs)
    assert [other.started - one.started for one, other in pairs] == [0.5, 0.5, 0.5]
    assert [one.started for one, _ in pairs] == [1.0, 3.0, 8.0]


@pytest.mark.parametrize(("worked", "of_step"), [(0.25, 6.0), (None, 10.0)])
def test_steps_of_ranks_that_share_cores_count_by_core_time(
    worked: float | None, of_step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, core = iter([0.0, 10.0]), iter([0.0, 3.0])
    monkeypatch.setattr(step_timing, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(step_timing, "process_time", lambda: next(core))
    facts = SimpleNamespace(shares_cores=lambda _: True, core_share=lambda _: 0.5)
    monkeypatch.setattr(step_timing, "job_facts", lambda: facts)
    half = 0.5  # cores of a rank
    monkeypatch.setattr(step_timing, "seconds_taken", lambda own, _: np.array(own, float) / half)
    world: Any = SimpleNamespace(timeline=None)
    call = _call(_SUM, 1.0, worked)
    step = timed_step(world, collectives.world(), lambda: world.timeline.append(call))
    assert (step.seconds, step.worked) == (10.0, of_step)
    assert step.calls.tolist() == [1.0 if worked is None else 0.5]


@pytest.mark.parametrize(("cores", "rest"), [(1, 2.25), (2, None)])
def test_core_time_is_the_rest_of_a_step_beside_the_network(
    cores: int, rest: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, core = iter([0.0, 10.0]), iter([0.0, 3.0])
    monkeypatch.setattr(step_timing, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(step_timing, "process_time", lambda: next(core))
    facts = SimpleNamespace(shares_cores=lambda _: False, core_share=lambda _: cores)
    monkeypatch.setattr(step_timing, "job_facts", lambda: facts)
    monkeypatch.setattr(step_timing, "seconds_taken", lambda own, _: np.array(own, float))
    monkeypatch.setattr(collectives.Group, "hosts", ("m1", "m2"))
    world: Any = SimpleNamespace(timeline=None, mesh=SimpleNamespace(partition=lambda _: ((0,),)))
    calls = [_call(_SUM, 1.0)._replace(beside=0.5), _call(_GATHER, 4.0, 0.25)]
    step = timed_step(world, collectives.world(), lambda: world.timeline.extend(calls))
    assert (step.seconds, step.worked, step.rest) == (10.0, 10.0, rest)
    assert step.calls.tolist() == [1.0, 1.0]


def test_pairs_of_ranks_that_share_a_link_get_it_in_turns() -> None:
    mesh = Mesh.of(4, (2, 2))  # ranks 0 and 2, and 1 and 3, are a pair on two machines
    seconds = np.array([[1.0, 9.0], [5.0, 2.0], [3.0, 4.0], [4.0, 8.0]])
    assert _of_groups(seconds, [_call(_SUM, 0.0)] * 2, mesh).tolist() == [2.5, 3.0]


def _call(record: str, started: float, worked: float | None = None) -> Call:
    return Call(started, started + 1, (StepTraffic("allreduce", (0,), 4, ""),), worked, record)
