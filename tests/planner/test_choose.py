"""Which strategy an option plans: the fastest, or data parallelism where that is as good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.offers.strategies import Choice, Strategies
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.prices.step_parts import StepTime
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.searches import frontier_search
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.report.plan_table import frontier_table
from tensoropt.search.baselines import data_parallel
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint
from tests.oracles.equality import Script, mlp, model_script
from tests.proofs import proof

tensoropt.enable_graph_mode()


def request_of(script: Script, overhead_seconds: float) -> Request:
    cluster = replace(load_cluster("8-v100"), collective_overhead_seconds=overhead_seconds)
    return Request(
        graph=script.imported(),
        cluster_at=lambda _: cluster,
        devices=2,
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=frozenset(script.feeds[0]),
    )


def step_of(choice: Choice, point: FrontierPoint) -> StepTime:
    problem, request = choice.problem, choice.request
    configurations = problem.configurations(point.strategy.tolist())
    batch = request.batch_placeholders
    strategy = Strategy(problem.graph, problem.mesh, configurations, batch)
    return step_time(strategy, request.cost_model(2, problem.mesh), reads=request.reads)


@pytest.mark.parametrize(
    ("model", "overhead_seconds", "is_planned"),
    [
        ("mlp", 0.0, False),
        ("mlp", 1e-4, True),
        ("lstm", 0.0, True),
        proof("transformer", 0.0, False),
        proof("transformer", 1e-6, True),
    ],
)
def test_data_parallelism_is_planned_where_predictions_do_not_tell_it_from_the_fastest(
    model: str, overhead_seconds: float, is_planned: bool
) -> None:
    script = mlp() if model == "mlp" else model_script(model, tf.float32, 1)
    choice = Strategies.of(request_of(script, overhead_seconds)).choice
    (other,) = data_parallel.solve(choice.problem)
    ours, theirs = (step_of(choice, each) for each in (choice.frontier[choice.point], other))
    assert np.array_equal(choice.planned.strategy, other.strategy) == is_planned
    assert is_planned == (theirs.total <= 1.03 * ours.total)
    is_slower = is_planned and theirs.total > ours.total
    assert (choice.preferred is not None) == is_slower
    plan = choice.plan("mini_time")
    assert any("data parallelism is planned" in note for note in plan.notes) == is_slower
    assert plan.executed_nanoseconds == (theirs if is_planned else ours).total
    assert plan.frontier == ((plan.memory_bytes, plan.executed_nanoseconds),)
    assert plan.peak_bytes == choice.peak.bytes
    assert Plan.from_json(plan.to_json()) == plan
    (own,) = [line for line in str(frontier_table(plan)).splitlines() if line.startswith("*")]
    assert f"{plan.executed_nanoseconds / 1e6:,.3f}" in own


def test_data_parallelism_that_does_not_fit_is_not_planned() -> None:
    request = request_of(mlp(), 1e-4)
    parallel = Strategies.of(request).choice.planned
    limit = int(parallel.memory * request.cluster_at(2).safety_factor) - 1
    choice = Strategies.of(replace(request, memory_limit_bytes=limit)).choice
    assert choice.preferred is None
    assert choice.plan("mini_time").memory_bytes < parallel.memory


def test_data_parallelism_is_a_strategy_where_memory_is_saved() -> None:
    request = replace(request_of(mlp(), 1e-5), space=Space(reuse=True, recompute=True))
    choice = Strategies.of(request).choice
    (other,) = data_parallel.solve(choice.problem)
    kept = {each.kept for each in choice.problem.configurations(other.strategy.tolist()).values()}
    assert kept == {"both"}


def test_a_frontier_that_is_not_exact_has_a_point_as_good_as_data_parallelism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that somebody ends may have found nothing as good, and plans name their point."""

    def ended(_: str) -> Callable[..., Outcome]:
        def search(problem: GraphProblem, *_: object) -> Outcome:
            counts = [node.configurations for node in problem.problem.nodes]
            some = np.random.default_rng(0).integers(0, counts, (50, len(counts)), np.int32)
            memory, time = problem.problem.costs(some)
            slow = [int(time.argmax())]
            return Outcome(Frontier(memory[slow], time[slow], some[slow], exact=False))

        return search

    monkeypatch.setattr(frontier_search, "solver", ended)
    choice = Strategies.of(request_of(model_script("transformer", tf.float32, 1), 0.0)).choice
    (other,) = data_parallel.solve(choice.problem)
    found = choice.frontier
    step = step_of(choice, other).total
    assert ((found.memory <= other.memory) & (found.time <= step)).any()
    plan = choice.plan("mini_time")
    assert Plan.from_json(plan.to_json()) == plan


def test_times_on_fewer_devices_are_those_that_plans_there_predict() -> None:
    script = model_script("lstm", tf.float32, 1)
    four = replace(request_of(script, 1e-5), devices=4)
    fewer = dict(choose(four, "mini_time").fewer_devices)
    assert list(fewer) == [1, 2]
    for devices, nanoseconds in fewer.items():
        there = replace(four, devices=devices, algorithm="data_parallel")
        assert nanoseconds == choose(there, "mini_time").executed_nanoseconds
    tight = replace(four, memory_limit_bytes=1)
    failures: list[str] = []
    assert fewer_devices(tight, None, failures) == ((1, None),)
    assert not failures
