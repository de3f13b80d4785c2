"""Eliminations before bounds, against enumeration and against eliminations alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import SearchSizeError
from tensoropt.search import Edge, Frontier, Node, Problem, frontier_tracking
from tensoropt.search.exact.ft_ldp import ft_ldp, solve_graph
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.exact.simplify_first import first_weights, simplify_first
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import reduced_frontier
from tensoropt.search.pareto.region import SearchRegion
from tensoropt.search.pareto.table import Table

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]

WEIGHTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 0.3), (1.0, 7.0))


def layered(layers: int, seed: int, across: bool) -> Problem:
    """Layers of four nodes that share all arrays; a skip connection around each, maybe others."""
    random = np.random.default_rng(seed)

    def node(name: str) -> Node:
        return Node(name, random.integers(0, 40, 6), random.integers(0, 40, 6))

    def edge(memory: int = 1) -> Edge:
        near, far = random.integers(0, 4, 6), random.integers(0, 4, 6)
        return Edge.of(
            0, 1, near, far, random.integers(0, memory, (4, 4)), random.integers(0, 30, (4, 4))
        )

    kinds = [node(name) for name in "abcd"]
    inside = {(0, 1): edge(), (1, 2): edge(5), (2, 3): edge(), (0, 3): edge(), (3, 4): edge()}
    if across:
        inside |= {(1, 5): edge(), (2, 6): edge()}
    nodes = [
        Node(f"{each.name}{k}", each.memory, each.time) for k in range(layers) for each in kinds
    ]
    edges = [
        Edge(4 * k + near, 4 * k + far, each.kind)
        for k in range(layers)
        for (near, far), each in inside.items()
        if 4 * k + far < len(nodes)
    ]
    return Problem(tuple(nodes), tuple(edges))


def test_where_the_rest_is_too_large_promising_states_leave_a_frontier_and_its_gap(
    positive_problem: Maker, covers: Covers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(graph: SearchGraph, incumbent: Frontier | None, *options: Any) -> Outcome:
        if incumbent is not None:
            graph.pointers.spend(2 * graph.limits.table_additions)
        return solve_graph(graph, incumbent, *options)

    monkeypatch.setattr("tensoropt.search.exact.simplify_first.solve_graph", too_large)
    inexact, limits = 0, SearchLimits(plain_states=0)
    for seed in range(20):
        problem = positive_problem(seed)
        outcome = simplify_first(problem, 0.0, limits)
        truth, found = brute_force(problem), outcome.found
        assert outcome.is_too_large
        assert outcome.additions > 0
        assert not found.exact
        assert truth.dominates(found)
        assert found.within is None or covers(found, truth, found.within)
        whole = frontier_tracking(problem, limits=SearchLimits(bounded_cells=0, plain_states=0))
        assert whole.dominates(found)
        inexact += not found.same_costs(truth)
    assert inexact


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SearchLimits(plain_states=0)])
def test_the_frontier_is_that_of_all_strategies(
    positive_problem: Maker, limits: SearchLimits
) -> None:
    for seed in range(40):
        problem = positive_problem(seed)
        found = simplify_first(problem, 0.0, limits).found
        assert found.exact
        assert found.same_costs(brute_force(problem))
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)


@pytest.mark.parametrize("across", [False, True])
def test_layers_that_are_alike(across: bool) -> None:
    for seed in range(6):
        problem = layered(5, seed, across)
        truth = ft_ldp(problem, SearchLimits(branch_states=100_000)).found
        assert truth.exact
        limits = SearchLimits(branch_states=100_000, plain_states=0)
        found = simplify_first(problem, 0.0, limits).found
        assert found.same_costs(truth)
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)


def test_what_is_alike_is_eliminated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counting(*arguments: Any) -> Table:
        nonlocal calls
        calls += 1
        return through_edge(*arguments)

    monkeypatch.setattr("tensoropt.search.exact.node_elimination.through_edge", counting)
    graph = SearchGraph(layered(8, 0, False))
    simplify(graph)
    assert graph.counts["node"] >= 14
    assert calls <= graph.counts["node"]  # each makes two of them


def test_epsilon_leaves_nothing_out_that_is_better_by_more(positive_problem: Maker) -> None:
    for seed in range(40):
        problem = positive_problem(seed)
        found = simplify_first(problem, 0.2, SearchLimits(plain_states=0)).found
        for memory, time, _ in brute_force(problem):
            near = (found.memory <= 1.2 * memory) & (found.time <= 1.2 * time)
            assert near.any()


def test_no_strategy_is_below_its_bounds(positive_problem: Maker) -> None:
    for seed in range(40):
        problem = positive_problem(seed)
        graph = SearchGraph(problem)
        bounds = graph.bound(WEIGHTS, 3)
        counts = [node.configurations for node in problem.nodes]
        strategies = np.indices(counts).reshape(len(counts), -1).T
        memory, time = problem.costs(strategies)
        for line, (per_nanosecond, per_byte) in enumerate(WEIGHTS):
            cost = per_nanosecond * time + per_byte * memory
            for node in range(len(counts)):
                bound = bounds[node][strategies[:, node], line]
                assert (bound <= cost * (1 + 1e-11) + 1e-9).all()


def test_too_many_cells_are_not_simplified() -> None:
    big = np.zeros((1500, 1500), dtype=np.int64)
    slots, costs = np.arange(1500), np.ones(1500, dtype=np.int64)
    nodes = (Node("a", costs, costs), Node("b", costs, costs))
    problem = Problem(nodes, (Edge.of(0, 1, slots, slots, big, big),))
    assert simplify_first(problem, 0.0, DEFAULT_LIMITS).is_too_large


def test_like_subgraphs_are_not_like_under_bounds() -> None:
    """What bounds leave of one of them is not what they leave of the others."""
    random = np.random.default_rng(556)

    def node(name: str, most: int) -> Node:
        return Node(name, random.integers(0, most, 4), random.integers(0, most, 4))

    def edge() -> Edge:
        costs = random.integers(0, 40, (4, 4)), random.integers(0, 40, (4, 4))
        return Edge.of(0, 1, np.arange(4), np.arange(4), *costs)

    like, inside = [node("x", 60), node("y", 60)], [edge(), edge(), edge()]
    nodes = [node("hub0", 100)]
    for number in range(1, 6):
        nodes += [*like, node(f"hub{number}", 100)]
    edges = [Edge(at, at + 1, inside[at % 3].kind) for at in range(15)]
    edges += [
        Edge(3 * one, 3 * other, edge().kind)
        for one in range(6)
        for other in range(one + 2, 6)
        if random.random() < 0.5
    ]
    problem = Problem(tuple(nodes), tuple(edges))
    truth = ft_ldp(problem, DEFAULT_LIMITS).found
    assert truth.exact
    some = np.sort(random.choice(len(truth), len(truth) // 8, replace=False))
    known = reduced_frontier(truth.memory[some], truth.time[some], truth.strategies[some])
    graph = SearchGraph(problem)
    region = SearchRegion.below(known.memory, known.time, 0.0)
    graph.prune(first_weights(problem, known, 8), region, 8)
    simplify(graph)
    assert solve_graph(graph, known, 0.0, 10**6).found.same_costs(truth)


def test_parallel_edges_with_too_many_pairs_of_slots_are_not_merged() -> None:
    states = 36
    node = Node("n", np.zeros(states, np.int64), np.zeros(states, np.int64))
    slots = np.divmod(np.arange(states), 6)
    cells = np.arange(36).reshape(6, 6)
    edges = [Edge.of(0, 1, own, own, cells, cells) for own in slots]
    problem = Problem((node, node), tuple(edges))
    pairs = states**2
    few = replace(DEFAULT_LIMITS, table_additions=pairs)
    with pytest.raises(SearchSizeError, match="additions"):
        SearchGraph(problem, few)
    merged = SearchGraph(problem, replace(DEFAULT_LIMITS, table_additions=100 * pairs))
    assert merged.edge(0, 1).table.rows == pairs
    assert simplify_first(problem, 0.0, few).is_too_large
