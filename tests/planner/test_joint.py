"""Joint frontiers: which graphs are candidates, and what the union of frontiers is."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.cluster import load_cluster
from tensoropt.graph.from_tensorflow.backward_reads import backward_reads
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches import joint_search
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.planner.searches.joint_search import near_candidates
from tensoropt.planner.searches.rewritten_graphs import RewrittenGraph, candidates
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.planner.searches.union import UnionPoint, union
from tensoropt.planner.spaces.findings import Findings
from tensoropt.planner.spaces.rewritten import offers
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.transformations.rewritten.application import rewritten, substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable
from tests.oracles.equality.engine import Script
from tests.oracles.equality.rewrite_scripts import REWRITE_SCRIPTS, adapters, experts

CLUSTER = load_cluster("8-k80")

points = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=8)


def request_of_adapters(devices: int) -> Request:
    return request_of(adapters(tf.float32, 256, 512, 8), devices)


def request_of(script: Script, devices: int) -> Request:
    shapes = dict(script.shapes)
    batch = frozenset(shapes)
    graph = script.imported()
    reads = backward_reads(script.graph, graph)
    roots = (script.train,)
    return Request(graph, lambda _: CLUSTER, devices, roots, shapes, batch, reads=reads)


def frontier(of: list[tuple[int, int]]) -> Frontier:
    kept: list[tuple[int, int]] = []
    for memory, time in sorted(of):
        if not kept or time < kept[-1][1]:
            kept.append((memory, time))
    memory, time = np.array(kept).T
    return Frontier(memory, time, np.zeros((len(kept), 1), np.int32))


def of_frontiers(frontiers: list[list[tuple[int, int]]]) -> list[UnionPoint]:
    return union(
        UnionPoint(*point, place, number)
        for place, each in enumerate(frontiers)
        for number, point in enumerate(each)
    )


@given(points, points)
def test_the_union_is_what_no_other_point_beats(one: list, other: list) -> None:
    united = of_frontiers([frontier(each).points for each in (one, other)])
    found = [(point.memory, point.time) for point in united]
    both = frontier([*one, *other])
    assert found == list(zip(both.memory.tolist(), both.time.tolist(), strict=True))


def test_of_equal_points_the_earlier_frontier_s_is_kept() -> None:
    united = of_frontiers([[(1, 9), (4, 3)], [(1, 9), (3, 3)]])
    assert [(point.frontier, point.number) for point in united] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("name", ["adapters", "experts", "branches", "lstm"])
def test_a_step_takes_at_least_its_estimate(name: str) -> None:
    """On one device it takes no more, except for operators that share a configuration."""
    script = REWRITE_SCRIPTS[name](tf.float32)
    for devices in (1, 4):
        request = request_of(script, devices)
        estimate = StepEstimate(request.cost_model(devices))
        step = int(search_frontier(request, devices)[1].time[-1])
        assert estimate(request.graph) <= step
        assert estimate(request.graph) == estimate(script.imported())
        assert estimate(request.graph) > (0.99 if devices == 1 else 0.5) * step


def test_graphs_that_gain_too_little_are_left_out() -> None:
    request = request_of_adapters(2)
    estimate = StepEstimate(request.cost_model(2))
    known = applicable(substitutions_by_name().values())
    args = request.graph, request.roots, known, estimate
    gained = candidates(*args)[0].nanoseconds / estimate(request.graph)
    assert gained < 0.97
    assert candidates(*args, gained + 0.001)
    assert not candidates(*args, gained - 0.001)


def test_nearly_equal_graphs_are_in_the_order_of_the_finest_mesh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = load_cluster("2x8-v100")
    machines = replace(known, levels=(replace(known.levels[0], count=4), known.levels[1]))
    script = REWRITE_SCRIPTS["branches"](tf.float32)
    request = replace(request_of(script, 32), cluster_at=lambda _: machines)
    coarse = [100, 101, 103, 104, 110]
    fine = [52, 51, 50, 40, 30]
    graphs = [copy(request.graph) for _ in coarse]
    found = [RewrittenGraph((), graph, time, 1) for graph, time in zip(graphs, coarse, strict=True)]
    monkeypatch.setattr(joint_search, "candidates", lambda *_: found)
    times = {id(graph): time for graph, time in zip(graphs, fine, strict=True)}
    monkeypatch.setattr(joint_search, "StepEstimate", lambda _: lambda graph: times[id(graph)])
    assert [each.nanoseconds for each in near_candidates(request, 32)] == [103, 101, 100, 104, 110]
    within = replace(request, devices=4)
    assert [each.nanoseconds for each in near_candidates(within, 4)] == coarse


def test_what_is_slower_on_the_way_is_found() -> None:
    """`x (w + a b)` becomes `x w + (x a) b`: the first half of that is slower."""
    request = request_of_adapters(1)
    estimate = StepEstimate(request.cost_model(1))
    known = applicable(substitutions_by_name().values())
    found = candidates(request.graph, request.roots, known, estimate)
    best = found[0]
    assert best.nanoseconds < estimate(request.graph)
    assert len({rewrite.substitution for rewrite in best.rewrites}) > 1
    again = rewritten(request.graph, best.rewrites, request.roots)
    assert again.summaries() == best.graph.summaries()
    gone = False
    for each in found:
        reads = request.of_rewritten(each.rewrites, each.graph).reads
        assert each.graph.operators.keys() >= {*reads.inputs, *reads.outputs}
        gone |= not each.graph.operators.keys() >= request.reads.inputs.keys()
    assert gone, "operators that the backward pass of the script reads for"


def test_the_joint_frontier_is_never_worse() -> None:
    request = replace(request_of_adapters(2), rewrite=True)
    whole = Strategies.of(request)
    searched = [whole, *offers(whole, Findings())]
    own = whole.frontier
    assert not whole.request.rewrites
    assert len(searched) > 1
    for point in own:
        assert any(
            p.memory <= point.memory and p.time <= point.time
            for p in of_frontiers([each.frontier.points for each in searched])
        )
    for each in searched[1:]:
        assert each.request.graph_digest == request.graph.digest()


def test_no_substitutions_give_no_graphs() -> None:
    request = request_of(experts(), 2)
    estimate = StepEstimate(request.cost_model(2))
    assert not candidates(request.graph, request.roots, (), estimate)
