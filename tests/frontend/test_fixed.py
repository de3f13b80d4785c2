"""A script whose layers are divided by hand trains as on one device."""

from __future__ import annotations

import dataclasses

import pytest

import tensoropt
from tensoropt.errors import StateError
from tests.oracles.equality.engine import worst_error
from tests.oracles.equality.fixed import BAR, Case, keeps, planned, script_of
from tests.oracles.equality.side_by_side import trained

tensoropt.enable_graph_mode()


@pytest.mark.parametrize(
    "case",
    [
        Case("gates", 4, 1, "stages", "gate0", "columns", ("device",)),
        Case("images", 3, 1, "whole batch", "last", "columns", ("device",)),
    ],
    ids=str,
)
def test_a_fixed_plan_equals_plain_tensorflow(case: Case) -> None:
    script, truth = script_of(case.model)
    plan = planned(case)
    assert all(keeps(plan, case).values())
    if not plan.stages:
        assert "divisions searched" in str(plan.explain(case.layer, 1e-9))
        with pytest.raises(StateError, match="Got another plan"):
            dataclasses.replace(plan, notes=("edited",)).explain(case.layer)
    assert worst_error(trained(script, plan), truth) <= BAR
