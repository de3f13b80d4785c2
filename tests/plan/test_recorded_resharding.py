"""Reshardings that a plan records: they are taken again, and checked when a plan is read."""

from __future__ import annotations

import dataclasses

import pytest

from tensoropt.errors import LayoutError, PlanError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.plan import Plan
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.planner.prices.reshard_steps import step_planner
from tests.plan.small_plans import a_plan


def test_steps_that_are_recorded_are_taken_whatever_others_cost() -> None:
    source, target = Layout(((0,), ())), Layout(((), (0,)))
    gathered = ReshardStep.from_source("allgather", (0,), source, from_dim=0)
    cut = ReshardStep.from_source("slice", (0,), gathered.target, to_dim=1)
    detour = RecordedResharding((8, 4), 4, source, target, (gathered, cut))
    plan = Plan.from_json(dataclasses.replace(a_plan(), reshardings=(detour,)).to_json())
    steps = step_planner(plan)
    assert steps((8, 4), "float32", source, target) == (gathered, cut)
    (direct,) = steps((8, 4), "float64", source, target)
    assert direct.kind == "alltoall"
    assert steps((8, 4), "float64", target, target) == ()
    assert [each.itemsize for each in steps.recorded()] == [4, 8]


def test_recorded_steps_lead_from_one_layout_to_the_other() -> None:
    gathered = ReshardStep.from_source("allgather", (0,), Layout(((0,), ())), from_dim=0)
    whole, columns = Layout(((), ())), Layout(((), (0,)))
    with pytest.raises(LayoutError, match="lead to its target"):
        RecordedResharding((8, 4), 4, gathered.source, columns, (gathered,))
    with pytest.raises(LayoutError, match="where the one before ended"):
        RecordedResharding((8, 4), 4, columns, whole, (gathered,))
    good = RecordedResharding((8, 4), 4, gathered.source, whole, (gathered,))
    values = dataclasses.replace(a_plan(), reshardings=(good,)).to_json()
    values["reshardings"][0]["steps"][0][2] = 1
    with pytest.raises(PlanError, match=r"at reshardings/0: .*allgather over"):
        Plan.from_json(values)
    values["reshardings"][0]["steps"] *= 65
    with pytest.raises(PlanError, match=r"at reshardings/0/steps: .* at most 64 items"):
        Plan.from_json(values)
    values["reshardings"][0]["steps"][0][0] = "teleport"
    values["reshardings"][0]["steps"][1:] = []
    with pytest.raises(PlanError, match=r"at reshardings/0/steps/0/0: 'teleport' .one of 'slice'"):
        Plan.from_json(values)
