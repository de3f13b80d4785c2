"""Explanations of a layer: all divisions are there, and say whether they were searched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.explain.explain import explain
from tensoropt.planner.request import Request
from tensoropt.planner.searches import frontier_search
from tests.planner.test_fixed import pinned
from tests.view.small_steps import request_of_step

DIVISIONS = {"whole on every device", *(f"{n} over device" for n in ("batch", "columns", "rows"))}


@pytest.fixture(scope="module")
def request_() -> Request:
    cluster = load_cluster("8-v100")
    return replace(request_of_step(), devices=2, cluster_at=lambda _: cluster)


@pytest.fixture(scope="module")
def plan(request_: Request) -> Plan:
    return choose(request_, "mini_time")


def test_without_time_all_divisions_are_estimates(request_: Request, plan: Plan) -> None:
    found = explain(request_, plan, "model/dense1", 1e-9).alternatives
    assert {each.words for each in found} == DIVISIONS
    assert not any(each.is_searched for each in found)
    assert [each.nanoseconds for each in found] == sorted(each.nanoseconds for each in found)


def test_a_searched_division_is_the_best_plan_with_the_layer_fixed(
    request_: Request, plan: Plan
) -> None:
    explanation = explain(request_, plan, "model/dense1", 1e9)
    found = {each.words: each for each in explanation.alternatives}
    assert found.keys() == DIVISIONS
    assert all(each.is_searched for each in found.values())
    rows = found["rows over device"]
    best = choose(pinned(request_, rows.fixed), "mini_time")
    costs = rows.nanoseconds, rows.memory_bytes
    assert costs == (best.executed_nanoseconds, best.memory_bytes)
    assert "4 of 4 divisions searched as whole plans" in str(explanation)


def test_the_search_of_the_plan_is_not_made_again(
    request_: Request, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(request_, results={})
    assert choose(request, "mini_time") == plan
    monkeypatch.setattr(frontier_search, "_searched", None)
    assert explain(request, plan, "model/dense1", 1e-9).alternatives


def test_a_layer_that_is_not_there_is_an_error(request_: Request, plan: Plan) -> None:
    with pytest.raises(OptionError, match="the nearest layers are 'model/dense"):
        explain(request_, plan, "model/dense9", 1.0)
