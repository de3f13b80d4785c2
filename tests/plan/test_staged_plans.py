"""Plans of stages: their fields agree, and memory is compared stage by stage."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tensoropt.errors import PlanError
from tensoropt.plan import Plan
from tensoropt.plan.comparison import ExecutedSteps, compare
from tensoropt.transformations.staged.order_of_passes import Schedule
from tests.plan.small_plans import staged_plan


def test_a_plan_of_stages() -> None:
    plan = staged_plan()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.stage_of == {"one": 0, "two": 1}
    assert plan.bubble == pytest.approx(1 - (4 * 300 + 50) / 2500)
    assert str(plan).startswith("plan mini_time on 2 devices: 2 stages, 0 of 2 operators split")


def test_memory_is_compared_with_what_the_stage_of_a_rank_takes() -> None:
    plan = staged_plan()
    first, second = plan.stages
    stages = first, dataclasses.replace(second, peak_bytes=3 * 2**20)
    plan = dataclasses.replace(plan, peak_bytes=5 * 2**20, stages=stages)
    for stage, predicted in ((None, 5), (0, None), (1, 3)):  # one process has all stages, or one
        peak = compare(plan, ExecutedSteps(stage=stage)).quantities[2]
        assert peak.predicted == predicted
    plan = dataclasses.replace(plan, peak_is_estimated=True)
    peak = compare(plan, ExecutedSteps(stage=0)).quantities[2]
    assert (peak.predicted, peak.margin) == (1, plan.peak_margin)  # the stage's sum


@pytest.mark.parametrize(
    ("stages", "schedule", "reason"),
    [
        ((0, 0), "1f1b", "'one' in several stages"),
        ((0,), "1f1b", r"stages of \[1\] devices for 2"),
        ((0, 2), "1f1b", "'two' in no stage"),
        ((0, 1), None, "schedule None of 2 stages"),
        ((0, 3), "1f1b", r"splits \(\(0,\), \(\)\) of 'two' on 0 axes"),
    ],
)
def test_stages_that_contradict_other_fields(
    stages: tuple[int, ...], schedule: Schedule | None, reason: str
) -> None:
    plan = staged_plan()
    operators = list(plan.operators)
    if stages[-1] == 3:
        operators[1] = dataclasses.replace(operators[1], splits=((0,), ()))
    names = {0: "one", 1: "two", 2: "three", 3: "two"}
    found = tuple(dataclasses.replace(plan.stages[0], operators=(names[n],)) for n in stages)
    wrong = dataclasses.replace(plan, operators=tuple(operators), stages=found, schedule=schedule)
    with pytest.raises(PlanError, match=reason):
        Plan.from_json(wrong.to_json())
