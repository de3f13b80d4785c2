"""Supported strategies by eliminations: least sums, and what is stated, against enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Frontier, Node, Problem
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.hull import between
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.series_parallel_hull import series_parallel_hull

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
Covers = Callable[[Frontier, Frontier, float], bool]

# Tables are rounded down to some 2**-30 of the largest.
UNITS = 1e-8
WEIGHTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.03), (3.0, 70.0))
SERIES_PARALLEL = range(7)  # the first shapes of random problems: chains to disconnected ones


def search(problem: Problem, known: Frontier | None = None, epsilon: float = 0.001) -> Outcome:
    return series_parallel_hull(problem, known, epsilon, DEFAULT_LIMITS)


def largest(problem: Problem) -> tuple[int, int]:
    """More memory and time than a strategy has."""
    parts = (*problem.nodes, *problem.edges)
    return sum(int(abs(part.memory).max()) for part in parts), sum(
        int(abs(part.time).max()) for part in parts
    )


def test_least_sums_are_those_of_enumeration(random_problem: Maker) -> None:
    for seed in range(80):
        problem = random_problem(seed)
        elimination = weighted_elimination(FlatGraph.of(problem))
        if elimination is None:
            assert seed % 10 not in SERIES_PARALLEL
            continue
        truth = brute_force(problem)
        for per_nanosecond, per_byte in WEIGHTS:
            wanted = (per_nanosecond * truth.time + per_byte * truth.memory).min()
            least, strategy, _ = elimination.least(per_nanosecond, per_byte)
            memory, time = problem.cost(strategy.tolist())
            near = UNITS * (per_nanosecond * largest(problem)[1] + per_byte * largest(problem)[0])
            assert least == pytest.approx(wanted, abs=near)
            assert per_nanosecond * time + per_byte * memory == pytest.approx(wanted, abs=near)


def test_four_nodes_that_are_all_joined_do_not_come_down_to_nothing() -> None:
    costs = np.arange(2)
    nodes = tuple(Node(f"n{node}", costs, costs) for node in range(4))
    table = np.ones((2, 2), dtype=np.int64)
    pairs = [(one, other) for other in range(4) for one in range(other)]
    edges = [Edge.of(*pair, costs, costs, table, table) for pair in pairs]
    assert weighted_elimination(FlatGraph.of(Problem(nodes, tuple(edges)))) is None
    assert search(Problem(nodes, tuple(edges))).is_too_large
    assert weighted_elimination(FlatGraph.of(Problem(nodes, tuple(edges[:-1])))) is not None


def test_too_much_work_is_not_begun(random_problem: Maker) -> None:
    found = weighted_elimination(FlatGraph.of(random_problem(1)))
    assert found is not None
    assert found.work > 0
    assert weighted_elimination(FlatGraph.of(random_problem(1)), found.work - 1) is None
    assert weighted_elimination(FlatGraph.of(random_problem(1)), found.work) is not None


def layers(random: np.random.Generator, *, alike: bool) -> Problem:
    """Two residual blocks of three nodes, with the costs of one, or with costs of their own."""
    sizes = [3, 2, 2, 3, 2, 2, 3]
    costs = [random.integers(0, 100, (2, size)) for size in sizes]
    if alike:
        costs[4:] = costs[1:4]
    nodes = [Node(f"n{place}", *own) for place, own in enumerate(costs)]
    edges: list[Edge] = []
    block: list[Edge] = []
    for first in (0, 3):
        if not block or not alike:
            block = [
                Edge.of(
                    one,
                    other,
                    np.arange(sizes[one]),
                    np.arange(sizes[other]),
                    *random.integers(0, 100, (2, sizes[one], sizes[other])),
                )
                for one, other in ((0, 1), (1, 2), (2, 3), (0, 3))
            ]
        edges += [Edge(edge.source + first, edge.target + first, edge.kind) for edge in block]
    return Problem(tuple(nodes), tuple(edges))


def test_blocks_that_are_alike_are_eliminated_once() -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        work = {}
        for alike in (False, True):
            problem = layers(random, alike=alike)
            truth = brute_force(problem)
            elimination = weighted_elimination(FlatGraph.of(problem))
            assert elimination is not None
            work[alike] = elimination.work
            for per_nanosecond, per_byte in WEIGHTS:
                least, strategy, _ = elimination.least(per_nanosecond, per_byte)
                memory, time = problem.cost(strategy.tolist())
                wanted = (per_nanosecond * truth.time + per_byte * truth.memory).min()
                assert least == pytest.approx(wanted, rel=UNITS)
                assert per_nanosecond * time + per_byte * memory == pytest.approx(wanted, rel=UNITS)
        assert work[True] < work[False]


def test_what_is_stated_holds_against_enumeration(random_problem: Maker, covers: Covers) -> None:
    stated = 0
    for seed in range(60):
        problem = random_problem(seed)
        outcome = search(problem)
        if outcome.is_too_large:
            continue
        found = outcome.found
        truth = brute_force(problem)
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        assert truth.dominates(found)
        if found.within is not None:
            stated += 1
            assert covers(found, truth, found.within), seed
    assert stated > 15


def test_the_hull_is_found(random_problem: Maker, not_negative: Asks) -> None:
    """For every weight the frontier has a strategy of least cost, up to the stopping gap."""
    for seed in range(60):
        problem = random_problem(seed)
        outcome = search(problem, epsilon=1e-9)
        if outcome.is_too_large or not not_negative(problem):
            continue
        found = outcome.found
        truth = brute_force(problem)
        for per_nanosecond, per_byte in WEIGHTS:
            wanted = (per_nanosecond * truth.time + per_byte * truth.memory).min()
            have = (per_nanosecond * found.time + per_byte * found.memory).min()
            assert have == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_known_strategies_are_never_lost(random_problem: Maker) -> None:
    for seed in range(20):
        problem = random_problem(seed)
        truth = brute_force(problem)
        known = Frontier(truth.memory, truth.time, truth.strategies, exact=False)
        assert search(problem, known).found.same_costs(truth)


def test_between_two_strategies_nodes_change_in_turn() -> None:
    found = between(np.array([[0, 5, 1, 2], [3, 5, 4, 6]], dtype=np.int32))
    assert sorted(found.tolist()) == [[0, 5, 1, 6], [0, 5, 4, 6], [3, 5, 1, 2], [3, 5, 4, 2]]
