"""The table of ``profiling`` over devices and memory limits, and the choice of ``mini_cost``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import InfeasibleError
from tensoropt.plan.parallelism_profile import ProfilePoint
from tensoropt.planner.choose import choose, profiling
from tensoropt.planner.request import Budget, PipelineNumbers, Request
from tensoropt.planner.searches import frontier_search
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.multilevel.coarse_to_fine import Known
from tensoropt.search.pareto.frontier import Frontier
from tests.oracles.equality import Script, mlp, model_script
from tests.proofs import proof

tensoropt.enable_graph_mode()

CLUSTER = load_cluster("8-v100")


def request_of(script: Script, devices: int) -> Request:
    """A step with all spaces open, as `find_strategy` asks without options."""
    return Request(
        graph=script.imported(),
        cluster_at=lambda _: CLUSTER,
        devices=devices,
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=frozenset(script.feeds[0]),
        pipeline=PipelineNumbers(None, is_asked=False),
        rewrite=None,
        keep_less=True,
        accumulate=True,
    )


@pytest.mark.parametrize(
    ("model", "counts", "shares"),
    [("mlp", (2, 4), (0.12, 0.4, 1.5)), proof("transformer", (2,), (0.12, 0.7))],
)
def test_a_row_is_what_mini_time_plans_and_limits_share_searches(
    model: str,
    counts: tuple[int, ...],
    shares: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = mlp() if model == "mlp" else model_script(model, tf.float32, 1)
    request = request_of(script, 4)
    whole = choose(replace(request, algorithm="data_parallel", pipeline=None), "mini_time")
    limits = [int(share * CLUSTER.safety_factor * whole.memory_bytes) for share in shares]
    searched: Counter[Hashable] = Counter()
    search = frontier_search._searched

    def counted(own: Request, devices: int, known: Known | None) -> tuple[GraphProblem, Frontier]:
        searched[devices, own.space, own.microbatches, own.rewrites] += 1
        return search(own, devices, known)

    with monkeypatch.context() as patch:
        patch.setattr(frontier_search, "_searched", counted)
        profile = profiling(request, counts, limits)
    assert set(searched.values()) == {1}
    assert [(point.devices, point.memory_limit_bytes) for point in profile] == [
        (devices, limit) for devices in counts for limit in limits
    ]
    for point in profile:
        alone = replace(request, devices=point.devices, memory_limit_bytes=point.memory_limit_bytes)
        assert point.least_seconds is None
        if point.fits:
            plan = choose(alone, "mini_time")
            assert point.time_seconds == plan.predicted_step_seconds
            assert point.memory_bytes == plan.memory_bytes
        else:
            with pytest.raises(InfeasibleError):
                choose(alone, "mini_time")
    assert {point.fits for point in profile} == {True, False}


def test_mini_cost_is_the_cheapest_row_that_meets_the_deadline() -> None:
    script = mlp(batch=960, widths=(192, 384, 384, 192))
    counts = (1, 2, 4)
    request = replace(request_of(script, 4), pipeline=None, rewrite=False)
    priced = replace(request, budget=Budget(device_hour_cost=2.0, parallelism=counts))
    profile = profiling(priced, counts)
    times = {point.devices: point.time_seconds or 0.0 for point in profile}
    assert times[1] > times[2]
    costs = {point.devices: point.million_samples_cost or 0.0 for point in profile}
    for devices, cost in costs.items():
        assert cost == pytest.approx(2.0 * devices * times[devices] / 3600 * 1e6 / 960)
    for seconds in (None, *times.values()):
        budget = replace(priced.budget, max_step_seconds=seconds)
        plan = choose(replace(priced, budget=budget), "mini_cost")
        in_time = [each for each in counts if seconds is None or times[each] <= seconds]
        assert plan.devices == min(in_time, key=lambda each: (costs[each], times[each]))
        assert plan.predicted_step_seconds == times[plan.devices]
        assert all(str(point) in plan.notes[-1] for point in profile)
        unpriced = replace(request, budget=replace(budget, device_hour_cost=None))
        without = choose(unpriced, "mini_cost")
        assert without.devices == plan.devices
        assert "device-seconds for a million samples" in without.notes[-1]
    fastest = min(times, key=lambda each: times[each])
    too_short = replace(priced.budget, max_step_seconds=times[fastest] / 2)
    got = rf"Got {times[fastest]:.4g} s for the fastest plan, on {fastest} device"
    with pytest.raises(InfeasibleError, match=got):
        choose(replace(priced, budget=too_short), "mini_cost")
    with pytest.raises(InfeasibleError, match="a strategy takes at most the memory limit"):
        choose(replace(priced, memory_limit_bytes=1), "mini_cost")


def test_the_price_of_a_cluster_counts_where_none_is_given() -> None:
    cluster = replace(CLUSTER, device_hour_cost=3.0)
    request = replace(request_of(mlp(), 2), cluster_at=lambda _: cluster, pipeline=None)
    assert request.device_hour_cost(2) == 3.0
    assert replace(request, budget=Budget(5.0)).device_hour_cost(2) == 5.0
    (point,) = profiling(replace(request, profile_at=lambda _: None), [2])
    assert isinstance(point, ProfilePoint)
    assert (point.device_hour_cost, point.batch_size, point.is_measured) == (3.0, 48, False)
