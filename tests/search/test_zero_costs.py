"""Problems in which much costs nothing: the frontier of enumeration all the same.

Shares of zero are zero, weights of nothing divide by nothing, and most strategies tie.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tensoropt.search import (
    Edge,
    Frontier,
    Node,
    Problem,
    brute_force,
    frontier_tracking,
)
from tensoropt.search.bounds.pruning_context import PruningContext
from tensoropt.search.exact import bounded, simplified
from tensoropt.search.exact.bounded import bounded_frontier
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.exact.simplified import simplified_frontier
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.outcome import Outcome
from tensoropt.search.supported.near_frontier import near_frontier

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]
Check = Callable[[Problem, Frontier, Frontier], None]
Int64Array = npt.NDArray[np.int64]
Zeroed = Callable[[Int64Array], Int64Array]

SEEDS = range(30)
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


def plain(problem: Problem, context: PruningContext | None) -> Outcome:
    return ft_ldp(problem, None, 0.0, DEFAULT_LIMITS, context=context)


@pytest.mark.parametrize("kind", KINDS)
def test_eliminations_find_the_frontier(random_problem: Maker, kind: str, check: Check) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = frontier_tracking(problem, bounds=False)
        assert found.exact
        check(problem, found, truth)
        check(problem, frontier_tracking(problem, max_states=1), truth)


@pytest.mark.parametrize("most", [0, 6, 8000])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_leave_the_frontier(
    random_problem: Maker, monkeypatch: pytest.MonkeyPatch, kind: str, most: int, check: Check
) -> None:
    monkeypatch.setattr(bounded, "_MOST_LEFT", most)
    monkeypatch.setattr(bounded, "_MOST_PROMISING", 6)
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = bounded_frontier(problem, plain)
        check(problem, found, truth)
        assert found.exact or most < 8000


@pytest.mark.parametrize("kind", KINDS)
def test_eliminations_before_bounds_leave_the_frontier(
    random_problem: Maker, kind: str, check: Check
) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        found = simplified_frontier(problem, 512)
        assert found is not None
        assert found.exact
        check(problem, found, brute_force(problem))


@pytest.mark.parametrize("epsilon", [0.001, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_frontiers_within_a_share_are(
    random_problem: Maker,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    epsilon: float,
    covers: Covers,
    check: Check,
) -> None:
    monkeypatch.setattr(bounded, "_SMALL_CELLS", 0)
    monkeypatch.setattr(bounded, "_MOST_PROMISING", 0)
    monkeypatch.setattr(simplified, "_MOST_CELLS", 0)
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = frontier_tracking(problem, epsilon=epsilon)
        check(problem, found, truth)
        assert covers(found, truth, epsilon), seed


@pytest.mark.parametrize("kind", KINDS)
def test_near_frontiers_state_what_holds(random_problem: Maker, kind: str, check: Check) -> None:
    for seed in SEEDS:
        problem = with_zeros(random_problem(seed), kind, seed)
        truth = brute_force(problem)
        found = near_frontier(problem, epsilon=0.01)
        check(problem, found, truth)
        if kind == "everything":
            assert found.same_costs(truth)
        again = near_frontier(problem, Frontier(truth.memory, truth.time, truth.strategies))
        assert again.same_costs(truth)
