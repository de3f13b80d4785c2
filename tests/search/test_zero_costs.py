"""Problems in which much costs nothing: the frontier of enumeration all the same.

Shares of zero are zero, weights of nothing divide by nothing, and most strategies tie.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Frontier, Node, Problem, frontier_tracking
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.exact.simplify_first import simplify_first
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]
Check = Callable[[Problem, Frontier, Frontier], None]
Int64Array = npt.NDArray[np.int64]
Zeroed = Callable[[Int64Array], Int64Array]

SEEDS = range(3)
KINDS = (
    "everything",
    "all time",
    "all memory",
    "nodes",
    "edges",
    "some parts",
    "most numbers",
    "one choice",
)


def with_zeros(problem: Problem, kind: str, seed: int) -> Problem:
    """The problem with absolute costs, of which some are zero."""
    random = np.random.default_rng([seed, KINDS.index(kind)])

    def of(costs: Int64Array, part: str, what: str) -> Int64Array:
        costs = abs(costs)
        if kind in ("everything", f"all {what}", part):
            return np.zeros_like(costs)
        if kind == "some parts":
            return costs * int(random.integers(2))
        if kind == "most numbers":
            return np.where(random.uniform(size=costs.shape) < 0.8, 0, costs)
        if kind == "one choice" and costs.ndim == 1:
            costs = costs.copy()
            costs[random.integers(costs.size)] = 0
        return costs

    nodes = tuple(
        Node(n.name, of(n.memory, "nodes", "memory"), of(n.time, "nodes", "time"))
        for n in problem.nodes
    )
    edges = tuple(
        Edge.of(
            e.source,
            e.target,
            e.source_slots,
            e.target_slots,
            of(e.memory, "edges", "memory"),
            of(e.time, "edges", "time"),
        )
        for e in problem.edges
    )
    return Problem(nodes, edges)


@pytest.fixture
def check(covers: Covers) -> Check:
    """The strategies cost what is said, and what is said of the frontier is so."""

    def checked(problem: Problem, found: Frontier, truth: Frontier) -> None:
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        assert truth.dominates(found)
        if found.exact:
            assert found.same_costs(truth)
        if found.within is not None:
            assert covers(found, truth, found.within)

    return checked


@pytest.mark.parametrize("kind", KINDS)
def test_eliminations_find_the_frontier(random_problem: Maker, kind: str, check: Check) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = frontier_tracking(problem, bounds=False)
        assert found.exact
        check(problem, found, truth)
        few = SearchLimits(branch_states=1)
        check(problem, frontier_tracking(problem, limits=few), truth)


@pytest.mark.parametrize("kind", KINDS)
def test_eliminations_before_bounds_leave_the_frontier(
    random_problem: Maker, kind: str, check: Check
) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        found = simplify_first(problem, 0.0, SearchLimits(plain_states=0)).found
        assert found.exact
        check(problem, found, brute_force(problem))


@pytest.mark.parametrize("epsilon", [0.001, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_frontiers_within_a_share_are(
    random_problem: Maker,
    kind: str,
    epsilon: float,
    covers: Covers,
    check: Check,
) -> None:
    limits = SearchLimits(bounded_cells=0, few_cells=0)
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = frontier_tracking(problem, epsilon=epsilon, limits=limits)
        check(problem, found, truth)
        assert covers(found, truth, epsilon), seed


@pytest.mark.parametrize("kind", KINDS)
def test_near_frontiers_state_what_holds(random_problem: Maker, kind: str, check: Check) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = branch_and_bound(problem, 0.01, DEFAULT_LIMITS).found
        check(problem, found, truth)
        if kind == "everything":
            assert found.same_costs(truth)
        known = Frontier(truth.memory, truth.time, truth.strategies)
        again = branch_and_bound(problem, 0.001, DEFAULT_LIMITS, incumbent=known)
        assert again.found.same_costs(truth)
