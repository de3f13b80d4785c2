"""Plan files of older schemas, which have fewer fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tensoropt.errors import PlanError
from tensoropt.json_files import digest_of
from tensoropt.plan import Plan
from tests.plan.small_plans import a_plan


def older(schema: int) -> dict[str, Any]:
    """A plan of a schema before plans had digests."""
    values = a_plan().to_json() | {"schema": schema}
    del values["digest"]
    return values


def test_a_plan_of_the_fourth_schema_has_no_digest() -> None:
    assert Plan.from_json(older(4)) == a_plan()
    with pytest.raises(PlanError, match="changed afterwards"):
        Plan.from_json({**older(4), "digest": "0" * 64})


def test_a_plan_of_the_first_schema_was_not_validated() -> None:
    values = older(1)
    del values["validation"]
    plan = Plan.from_json(values)
    assert plan == a_plan()
    assert plan.validation is None


def test_a_plan_of_the_second_schema_records_no_reshardings() -> None:
    values = older(2)
    del values["reshardings"]
    plan = Plan.from_json(values)
    assert plan == a_plan()
    assert plan.reshardings == ()


def test_a_plan_of_the_third_schema_normalises_by_the_whole_batch() -> None:
    values = older(3)
    del values["batch_norm"]
    assert Plan.from_json(values) == a_plan()
    assert a_plan().batch_norm == "global"


def test_a_plan_of_the_fifth_schema_computes_a_batch_at_once() -> None:
    values = a_plan().to_json() | {"schema": 5}
    del values["microbatches"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().microbatches == 1
    with pytest.raises(PlanError, match="changed afterwards"):
        Plan.from_json(values | {"batch_norm": "local"})


def test_a_plan_of_the_ninth_schema_states_no_peaks_of_its_frontier() -> None:
    values = a_plan().to_json() | {"schema": 9}
    del values["frontier_peaks"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().frontier_peaks == ()


def test_a_plan_of_the_fourteenth_schema_shows_its_points_by_sums() -> None:
    """Its peaks are those of some points alone."""
    values = a_plan().to_json() | {"schema": 14, "frontier_peaks": [[2**20, 2**21]]}
    del values["digest"]
    plan = Plan.from_json({**values, "digest": digest_of(values)})
    assert plan == a_plan()
    assert plan.points == list(plan.frontier)


def test_a_plan_has_a_peak_for_each_point_or_none() -> None:
    some = dataclasses.replace(a_plan(), frontier_peaks=(None,) * 9)
    with pytest.raises(PlanError, match="9 frontier_peaks for"):
        Plan.from_json(some.to_json())


def test_a_plan_of_the_eleventh_schema_does_not_say_how_its_peak_is_known() -> None:
    values = a_plan().to_json() | {"schema": 11, "frontier_rewrites": []}
    del values["peak_is_estimated"], values["frontier_ways"], values["digest"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().peak_margin == 1
    estimated = dataclasses.replace(a_plan(), peak_is_estimated=True)
    assert Plan.from_json(estimated.to_json()) == estimated
    assert estimated.peak_margin > 1


def test_ways_of_points_are_one_for_each_and_of_older_plans_their_substitutions() -> None:
    values = a_plan().to_json() | {"schema": 11}
    del values["peak_is_estimated"], values["frontier_ways"], values["digest"]
    names = [["one", "two"], *([[]] * (len(a_plan().frontier) - 1))]
    given = {**values, "frontier_rewrites": names}
    ways = Plan.from_json({**given, "digest": digest_of(given)}).frontier_ways
    assert ways == ("one, two", *["whole batch"] * (len(names) - 1))
    for wrong in ("one", [1], [[1]]):
        with pytest.raises(PlanError, match="frontier_rewrites"):
            Plan.from_json({**values, "digest": None, "frontier_rewrites": wrong})
    some = dataclasses.replace(a_plan(), frontier_ways=("one",) * 9)
    with pytest.raises(PlanError, match="9 frontier_ways for"):
        Plan.from_json(some.to_json())


def test_a_plan_of_the_sixth_schema_has_no_stages() -> None:
    values = a_plan().to_json() | {"schema": 6}
    del values["stages"], values["schedule"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert (a_plan().stages, a_plan().schedule, a_plan().bubble) == ((), None, 0.0)
