"""How much longer things take in steps, from measured steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.machine_profile import (
    MeasuredCollective,
    Overheads,
    Profile,
    Setting,
    measured_cluster,
)
from tensoropt.cost.measured_operator_times import MeasuredOperator
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.cost.slowdown_in_steps import MeasuredCall, MeasuredStep, factors, usual_step
from tensoropt.errors import PlanError
from tensoropt.parallel.resharding import StepTraffic

SETTING = Setting("a processor", 2, (2,), "2.18.1", "MPICH 5.0")


def gathered(bytes_: int, kind: str = "allgather") -> StepTraffic:
    return StepTraffic(kind, (0,), bytes_, "whole")


def step(
    *calls: MeasuredCall, rest: int = 100, computing: int = 100, calling: int = 0
) -> MeasuredStep:
    return MeasuredStep("a graph", rest, computing, calling, calls)


def by_bytes(move: StepTraffic) -> float:
    """A collective alone takes a nanosecond for every byte."""
    return float(move.bytes)


def test_without_steps_things_take_as_long_as_alone() -> None:
    found = factors((), by_bytes)
    assert (
        found.computing == found.calling == found.overall == found.of("allgather", (0,), 1) == 1.0
    )


def test_operators_take_longer_by_what_steps_take() -> None:
    found = factors([step(rest=150), step(rest=150)], by_bytes)
    assert found.computing == found.calling == pytest.approx(1.5)
    assert found.of("allgather", (0,), 1024) == 1.0  # there were none


def test_computing_and_calling_are_told_apart_where_steps_differ() -> None:
    steps = [
        step(rest=2 * computing + 3 * calling, computing=computing, calling=calling)
        for computing, calling in ((1000, 10), (1000, 700), (800, 300), (900, 1000))
    ]
    found = factors(steps, by_bytes)
    assert found.computing == pytest.approx(2, rel=0.05)
    assert found.calling == pytest.approx(3, rel=0.1)
    alike = factors([step(rest=260, computing=100, calling=30)] * 3, by_bytes)
    assert alike.computing == pytest.approx(2)
    assert alike.calling == pytest.approx(2)


def test_steps_in_microbatches_tell_what_rereading_takes() -> None:
    whole = step(rest=1500, computing=1000)
    four = replace(step(rest=3000, computing=1000), microbatches=4, reread_bytes=3000)
    found = factors([whole, four], by_bytes)
    assert found.computing == pytest.approx(1.5)
    assert found.rereading == pytest.approx(0.5)
    eight = replace(step(rest=1500 + 7000, computing=1000), microbatches=8, reread_bytes=7000)
    assert factors([whole, four, eight], by_bytes).rereading == pytest.approx(0.85)
    faster = replace(step(rest=1000, computing=1000), microbatches=2, reread_bytes=1000)
    assert factors([whole, faster], by_bytes).rereading == 0.0
    assert factors([whole], by_bytes).rereading == 0.0


def test_no_factor_is_far_from_that_of_all() -> None:
    steps = [
        step(rest=1000, computing=1000, calling=1),
        step(rest=9000, computing=1000, calling=100),
    ]
    found = factors(steps, by_bytes)
    ratio = 10000 / 2101
    for factor in (found.computing, found.calling):
        assert ratio / 2 <= factor <= 2 * ratio


def test_each_kind_and_size_has_a_factor_of_its_own() -> None:
    small = MeasuredCall((gathered(1 << 10),), 4, 4 * 2 << 10)  # twice as long
    large = MeasuredCall((gathered(1 << 20),), 1, 3 << 20)  # three times
    other = MeasuredCall((gathered(1 << 20, "alltoall"),), 1, 1 << 20)  # as long
    found = factors([step(small, large), step(other)], by_bytes)
    assert found.of("allgather", (0,), 1 << 20) == pytest.approx(3, rel=0.03)
    assert found.of("alltoall", (0,), 1 << 20) == pytest.approx(1, rel=0.05)
    assert 1 < found.of("allgather", (0,), 1 << 10) < 3
    across = MeasuredCall((gathered(1 << 20)._replace(axes=(1,)),), 1, 6 << 20)
    both = factors([step(small, large, across), step(other)], by_bytes)
    assert both.of("allgather", (0,), 1 << 20) == pytest.approx(3, rel=0.05)
    assert both.of("allgather", (1,), 1 << 20) == pytest.approx(6, rel=0.05)
    # What no step moves takes longer by as much as all.
    assert found.of("broadcast", (0,), 4) == pytest.approx(found.overall)
    assert found.overall == pytest.approx(2, rel=0.01)


def test_one_size_is_exact_where_there_is_no_other() -> None:
    call = MeasuredCall((gathered(1 << 16),), 2, 3 << 16)
    found = factors([step(call)], by_bytes)
    assert found.of("allgather", (0,), 1 << 16) == pytest.approx(1.5)
    assert found.of("allreduce", (0,), 64) == pytest.approx(1.5)


def test_a_resharding_is_shared_among_its_collectives_as_they_take_alone() -> None:
    both = MeasuredCall((gathered(1 << 20), gathered(1 << 10, "alltoall")), 1, 2 * 1025 << 10)
    found = factors([step(both)], by_bytes)
    assert found.of("allgather", (0,), 1 << 20) == pytest.approx(2)
    assert found.of("alltoall", (0,), 1 << 10) == pytest.approx(2)


def test_a_usual_step_has_its_calls_by_what_they_move_without_local_copies() -> None:
    copy = StepTraffic("slice", (0,), 500, "whole")
    calls = [((gathered(64),), 2e-6), ((copy, gathered(64)), 4e-6), ((gathered(128),), 1e-6)]
    found = usual_step("a graph", 1e-5, 2500, 200, calls, by_bytes)
    assert found == MeasuredStep(
        "a graph",
        3000,
        2500,
        200,
        (
            MeasuredCall((gathered(64),), 2, 2000 + 4000 - 500),
            MeasuredCall((gathered(128),), 1, 1000),
        ),
    )


def test_the_measured_rest_of_a_step_takes_precedence_over_its_time_besides_calls() -> None:
    calls = [((gathered(64),), 9e-6)]
    assert usual_step("a graph", 1e-5, 1, 0, calls, by_bytes).rest_nanoseconds == 1000
    found = usual_step("a graph", 1e-5, 1, 0, calls, by_bytes, rest_seconds=3e-6)
    assert found.rest_nanoseconds == 3000


def profile() -> Profile:
    work = OperatorWork("elementwise", "float32", 4, 32, 1, "Relu", (("T", "x"),), ((2, 2),))
    collectives = tuple(
        MeasuredCollective("allgather", runs, (0,), size, size, size, 0.0, 0)
        for size in (1 << 10, 1 << 20)
        for runs in ("whole", "long")
    )
    call = MeasuredCall((gathered(1 << 20),), 2, 3 << 20)
    return Profile(
        setting=SETTING,
        mesh=(2,),
        complete=True,
        collectives=collectives,
        overheads=Overheads(100, 800, 50_000),
        operators=(MeasuredOperator(work, 1200, 800),),
        steps=(step(call, rest=110),),
    )


def test_a_profile_s_costs_are_those_in_steps() -> None:
    measured, alone = profile(), replace(profile(), steps=())
    for table, before in zip(measured.tables(), alone.tables(), strict=True):
        assert table.kind == before.kind
        assert before.nanoseconds == (1 << 10, 1 << 20)
        assert (table.bytes, table.nanoseconds) == (
            tuple(1 << power for power in range(10, 21)),
            tuple(3 << power for power in range(9, 20)),
        )
    (operator,) = measured.operators_in_steps()
    assert (operator.forward_nanoseconds, operator.backward_nanoseconds) == (1320, 880)
    assert alone.operators_in_steps() == alone.operators
    cluster = measured_cluster(load_cluster("8-v100"), measured)
    assert cluster.collective_overhead_seconds == pytest.approx(880e-9)
    assert cluster.step_overhead_seconds == pytest.approx(55e-6)
    assert cluster.measured == measured.tables()


def test_steps_are_kept_in_the_file_and_checked() -> None:
    values = profile().to_json()
    assert Profile.from_json(values, "here") == profile()
    values["steps"][0]["calls"][0]["moves"] = []
    with pytest.raises(PlanError, match="steps/0/calls/0/moves"):
        Profile.from_json(values, "here")
