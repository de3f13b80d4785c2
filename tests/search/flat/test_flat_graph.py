"""Flat graphs, of problems and of what eliminations leave of them, have their frontiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.arrays import BoolArray, Int32Array
from tensoropt.problem.restrict import restrict
from tensoropt.search import Frontier, Problem
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.exact.ft_ldp import solve_graph
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.flat.fewer_states import NEW, fewer_states
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
WEIGHTS = (1.0, 0.7)


def test_with_fewer_states_they_have_the_frontiers_of_smaller_problems(
    random_problem: Maker,
) -> None:
    folded = 0
    for seed in range(40):
        problem = random_problem(seed)
        random = np.random.default_rng(seed)
        graph = FlatGraph.of(problem)
        alive = _some(graph, random)
        kept = [np.flatnonzero(own) for own in np.split(alive, graph.ends.start[1:-1])]
        fewer = fewer_states(graph, alive)
        truth = brute_force(restrict(problem, kept))
        _check(_solved(fewer.graph), truth, problem)
        folded += fewer.graph.ends.start.size < graph.ends.start.size
        assert (fewer.states[fewer.states != NEW] < graph.memory.size).all()
    assert folded > 10


def test_what_eliminations_leave_has_the_whole_frontier(random_problem: Maker) -> None:
    several = 0
    for seed in range(40):
        problem = random_problem(seed)
        truth = brute_force(problem)
        graph = _simplified(problem)
        several += any(own.offsets is not None for own in graph.cells)
        _check(_solved(graph), truth, problem)
        # All frontiers of parts together are the whole's.
        node = int(np.diff(graph.ends.start).argmax())
        first, last = graph.ends.start[node], graph.ends.start[node + 1]
        memory, time = [], []
        for state in range(first, last):
            alive = np.ones(graph.memory.size, dtype=np.bool_)
            alive[first:last] = np.arange(first, last) == state
            found = _solved(fewer_states(graph, alive).graph)
            assert np.array_equal(problem.costs(found.strategies), (found.memory, found.time))
            memory += found.memory.tolist()
            time += found.time.tolist()
        assert set(zip(truth.memory.tolist(), truth.time.tolist(), strict=True)) <= set(
            zip(memory, time, strict=True)
        )
    assert several > 3


def test_weighted_costs_are_those_of_the_strategies_they_stand_for(
    random_problem: Maker, not_negative: Asks
) -> None:
    exact = compared = 0
    for seed in range(40):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        graph = _simplified(problem)
        table = WeightedBounds(graph)
        truth = brute_force(problem)
        least = (WEIGHTS[0] * truth.time + WEIGHTS[1] * truth.memory).min()
        bounds = table.bounds(*WEIGHTS, 4)
        assert bounds.least <= least * (1 + 1e-9)
        near = Neighbourhoods(table)
        chosen: Int32Array = near.near_bounds(bounds)
        memory, time, identities = graph.cost(WEIGHTS, chosen)
        strategy = graph.pointers.unroll_sets(identities[None], graph.size)[0]
        assert problem.cost(strategy.tolist()) == (memory, time)
        cost = WEIGHTS[0] * time + WEIGHTS[1] * memory
        np.testing.assert_allclose(near.cost(WEIGHTS, chosen), cost, rtol=1e-6)
        assert cost >= least * (1 - 1e-9)
        exact += cost <= least * (1 + 1e-9)
        compared += 1
    assert exact > 0.8 * compared > 15


def _simplified(problem: Problem) -> FlatGraph:
    graph = SearchGraph(problem)
    simplify(graph)
    return graph.flat()


def _solved(graph: FlatGraph) -> Frontier:
    states = DEFAULT_LIMITS.context_branch_states
    return solve_graph(SearchGraph(graph), None, 0.0, states).found


def _check(found: Frontier, truth: Frontier, problem: Problem) -> None:
    assert found.same_costs(truth)
    assert np.array_equal(problem.costs(found.strategies), (found.memory, found.time))


def _some(graph: FlatGraph, random: np.random.Generator) -> BoolArray:
    """A random choice of at least one state of each node."""
    start = graph.ends.start
    alive: BoolArray = random.random(start[-1]) < 0.5
    alive[start[:-1] + random.integers(0, np.diff(start))] = True
    return alive
