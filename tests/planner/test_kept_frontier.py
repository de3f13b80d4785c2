"""Points of a kept frontier: their plans are those that the market itself would have made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tensoropt as tf
from tensoropt.cost.peak.estimated_peak import Peak
from tensoropt.errors import InfeasibleError, OptionError, PlanError
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.planner.choose import chosen
from tensoropt.planner.offers.kept_frontier import OF_THE_MARKET, KeptFrontier
from tensoropt.planner.offers.number_rows import rows_of, texts_of
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import PipelineNumbers, Request
from tests.frontend.test_branches import towers
from tests.frontend.test_rewrite import adapted

tf.enable_graph_mode()


def layers(width: int = 128) -> None:
    values = tf.placeholder(tf.float32, [None, width], name="x")
    for layer in range(2):
        wide = tf.tanh(tf.matmul(values, tf.get_variable(f"wide{layer}", [width, 4 * width])))
        narrow = tf.get_variable(f"narrow{layer}", [4 * width, width])
        values += tf.nn.relu(tf.matmul(tf.tanh(wide), narrow))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(values)))


def request_of(build: Callable[[], Any], batch: int, **fields: Any) -> Request:
    """The request of a script that is run anew, without dry runs."""
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=2, cluster=None if build is adapted else "2x8-v100")
    build()
    request = step_request(current(), PlanningOptions(batch_size=batch, pipeline=False))
    return replace(request, dry_run_peak=None, stage_peak=None, **fields)


def branches() -> None:
    tf.shutdown()
    towers(12, joined=True)


SHORT: dict[str, Any] = {
    "memory_limit_bytes": 24 * 2**20,
    "keep_less": True,
    "accumulate": True,
    "pipeline": PipelineNumbers(None),
}


@pytest.mark.parametrize(
    ("build", "batch", "fields", "ways"),
    [
        (adapted, 128, {"rewrite": True}, {"matmul distributes over add, right"}),
        (
            adapted,
            128,
            {"rewrite": True, "pipeline": PipelineNumbers(2)},
            {"2 stages", "matmul distributes over add, right"},
        ),
        (layers, 4096, SHORT, {"whole batch", "microbatches", "less kept"}),
        (layers, 64, {"pipeline": PipelineNumbers(2)}, {"2 stages"}),
        (
            layers,
            4096,
            {
                "pipeline": PipelineNumbers(2, 4),
                "keep_less": True,
                "memory_limit_bytes": 12 * 2**20,
            },
            {"2 stages, 4 microbatches, less kept"},
        ),
        (branches, 3, {"pipeline": PipelineNumbers(None)}, {"2 branches side by side"}),
        (layers, 4096, {"algorithm": "tofu"}, {"whole batch"}),
    ],
    ids=[
        *("rewritten", "rewritten stages", "short memory", "stages", "stages that keep less"),
        *("branches", "tofu"),
    ],
)
def test_a_taken_point_has_the_plan_of_the_market(
    build: Callable[[], None], batch: int, fields: dict[str, Any], ways: set[str]
) -> None:
    market, plan = chosen(request_of(build, batch, **fields), "mini_time")
    kept = json.loads(json.dumps(market.kept(plan).to_json()))
    every = plan.frontier_ways
    assert all(any(way in each for each in every) for way in ways)
    ample = {**fields, "memory_limit_bytes": 2**40}
    again = request_of(build, batch, **ample)
    for number in sorted({every.index(way) for way in every} | {len(every) - 1}):
        point = market.frontier()[number]
        made = market.offers[point.frontier].plan_of(point.number, "mini_time")
        taken = KeptFrontier.from_json(kept).plan_of(again, "mini_time", number)
        assert taken.runs_as(made)
        memory, step = plan.frontier[number]
        assert taken.memory_bytes == memory
        assert taken.executed_nanoseconds == pytest.approx(step, rel=0.1)  # may be interpolated
        shared = {name: getattr(plan, name) for name in OF_THE_MARKET}
        limit = taken.memory_limit_bytes
        assert taken == replace(made, memory_limit_bytes=limit, point=number, **shared)


def test_a_point_that_is_not_there_or_does_not_fit_is_refused() -> None:
    request = request_of(layers, 256)
    market, plan = chosen(request, "mini_time")
    kept = market.kept(plan)
    for number in (-1, len(kept)):
        with pytest.raises(OptionError, match=f"{len(kept)} points .* Got point={number}"):
            kept.plan_of(request, "mini_time", number)
    least = replace(request, memory_limit_bytes=plan.frontier[0][0])  # less by the safety factor
    with pytest.raises(InfeasibleError, match=r"memory of a device.* Got point 0 with .* a device"):
        kept.plan_of(least, "mini_time", 0)
    much = Peak(2**40, 0, "of a dry run")
    with pytest.raises(InfeasibleError, match=r"memory of a device.* Got point 0 with a peak of"):
        kept.plan_of(replace(request, dry_run_peak=lambda *_: much), "mini_time", 0)


def test_an_amount_of_memory_takes_the_fastest_point_that_is_shown_within_it() -> None:
    request = request_of(layers, 256)
    market, plan = chosen(request, "mini_time")
    kept = KeptFrontier.from_json(market.kept(plan).to_json())
    assert plan.points == sorted(plan.points)
    assert [memory for memory, _ in plan.points] == [
        peak.bytes for peak in plan.frontier_peaks if peak is not None
    ]
    for number in sorted({0, len(kept) // 2, len(kept) - 1}):
        memory, _ = plan.points[number]
        taken = kept.plan_of(request, "mini_time", str(memory))
        assert taken.point == number
        assert taken.points == plan.points
    least = plan.points[0][0]
    with pytest.raises(InfeasibleError, match="the least memory of a point"):
        kept.plan_of(request, "mini_time", str(least - 1))


def test_an_amount_of_memory_takes_a_slower_point_if_the_shown_peak_was_too_low() -> None:
    request = request_of(layers, 256)
    market, plan = chosen(request, "mini_time")
    kept, (within, fastest) = market.kept(plan), plan.points[-1]
    peaks = iter([within + 1, within])
    high_once = replace(request, dry_run_peak=lambda *_: Peak(next(peaks), 0, "of a dry run"))
    taken = kept.plan_of(high_once, "mini_time", str(within))
    assert taken.peak_bytes == within
    assert taken.time_nanoseconds > fastest
    high = replace(request, dry_run_peak=lambda *_: Peak(2 * within, 0, "of a dry run"))
    with pytest.raises(InfeasibleError, match=r"least peak of the tried plans is .*; give more"):
        kept.plan_of(high, "mini_time", str(within))


def test_plans_of_several_points_are_those_of_each() -> None:
    request = request_of(layers, 256)
    market, plan = chosen(request, "mini_time")
    kept = market.kept(plan)
    numbers = sorted({0, len(kept) // 2, len(kept) - 1})
    each = {number: kept.plan_of(request, "mini_time", number) for number in numbers}
    assert kept.plans_of(request, "mini_time", numbers) == each


def test_a_frontier_of_another_step_or_a_changed_one_is_refused() -> None:
    market, plan = chosen(request_of(layers, 256), "mini_time")
    kept = market.kept(plan)
    with pytest.raises(PlanError, match="another step"):
        kept.plan_of(request_of(layers, 512), "mini_time", 0)
    changes: list[dict[str, Any]] = [{"devices": 4}, {"points": []}, {"more": 1}]
    for changed in changes:
        with pytest.raises(PlanError):
            KeptFrontier.from_json({**kept.to_json(), **changed})


@given(
    arrays.arrays(
        np.int64,
        st.tuples(st.integers(1, 4), st.integers(1, 5)),
        elements=st.integers(0, 3),
    )
)
def test_rows_come_back_from_their_texts(rows: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    assert np.array_equal(rows_of(texts_of(rows)), rows)
