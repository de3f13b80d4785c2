"""Branch and bound: the gap that it states holds against enumeration, however it comes to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tensoropt.search.branching.branch_and_bound as branching
from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Frontier, Node, Problem
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.branching.divide import at_hub, by_costs, sides
from tensoropt.search.branching.subproblem import Subproblem
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.watch import Watch

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
Covers = Callable[[Frontier, Frontier, float], bool]
Interrupting = Callable[..., Watch]

# Small parts are searched exactly; all are divided; nothing is looked at twice.
SETTINGS = (
    DEFAULT_LIMITS,
    replace(DEFAULT_LIMITS, exact_states=0, branching_additions=1e13),
    replace(DEFAULT_LIMITS, exact_states=0, branching_additions=0.0),
)


@pytest.mark.parametrize("limits", SETTINGS)
@pytest.mark.parametrize("epsilon", [0.0005, 0.05])
def test_what_is_stated_holds_against_enumeration(
    random_problem: Maker, not_negative: Asks, covers: Covers, limits: SearchLimits, epsilon: float
) -> None:
    reached = problems = 0
    for seed in range(20):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        found = branch_and_bound(problem, epsilon, limits).found
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        assert truth.dominates(found)
        assert found.within is not None
        assert covers(found, truth, found.within), seed
        reached += found.within <= epsilon
        problems += 1
    if limits.branching_additions:
        assert reached == problems
    print("gap reached:", reached, "of", problems)


@pytest.mark.parametrize("almost", [1.0, np.inf])
def test_a_stage_may_leave_its_gap_to_the_next(
    positive_problem: Maker, covers: Covers, monkeypatch: pytest.MonkeyPatch, almost: float
) -> None:
    monkeypatch.setattr(branching, "NEAR_GAP", almost)
    for seed in range(8):
        problem = positive_problem(seed)
        found = branch_and_bound(problem, 0.001, SETTINGS[0]).found
        assert found.is_within(0.001)
        assert covers(found, brute_force(problem), 0.001), seed


def test_it_finds_what_no_weights_find(covers: Covers) -> None:
    """Two large trade-offs that are on no corner of the hull, and edges that take memory."""
    random = np.random.default_rng(3)
    large = [
        Node(f"large{number}", np.array([0, 700_000]) + 100_000, np.array([900_000, 0]) + 100_000)
        for number in range(2)
    ]
    small = [
        Node(f"small{number}", random.integers(0, 20_000, 6), random.integers(0, 20_000, 6))
        for number in range(4)
    ]
    nodes = (large[0], *small, large[1])

    def edge(source: int, target: int) -> Edge:
        counts = nodes[source].configurations, nodes[target].configurations
        memory, time = random.integers(0, 5_000, counts), random.integers(0, 5_000, counts)
        return Edge.of(source, target, np.arange(counts[0]), np.arange(counts[1]), memory, time)

    edges = tuple(edge(number, number + 1) for number in range(5))
    problem = Problem(nodes, (*edges, edge(0, 5), edge(1, 4), edge(0, 3)))
    truth = brute_force(problem)
    for limits in SETTINGS[:2]:
        found = branch_and_bound(problem, 0.001, limits).found
        assert found.is_within(0.001)
        assert covers(found, truth, 0.001)
        assert truth.dominates(found)
        assert len(found) > 5


def test_a_part_is_divided_at_a_node_of_few_states_and_many_neighbours() -> None:
    """The halves have one configuration and all others of the node; other nodes keep all."""
    random = np.random.default_rng(1)
    counts = (5, 3, 5, 5, 5, 2)  # the node of three states is next to four others
    nodes = tuple(
        Node(str(number), random.integers(0, 99, count), random.integers(0, 99, count))
        for number, count in enumerate(counts)
    )

    def edge(source: int, target: int) -> Edge:
        pair = counts[source], counts[target]
        memory, time = random.integers(0, 99, pair), random.integers(0, 99, pair)
        return Edge.of(source, target, np.arange(pair[0]), np.arange(pair[1]), memory, time)

    edges = (edge(0, 1), edge(1, 2), edge(1, 3), edge(1, 4), edge(0, 2), edge(4, 5))
    part = Subproblem(FlatGraph.of(Problem(nodes, edges)))
    halves = at_hub(part)
    assert halves is not None
    one, other = halves
    hub = slice(counts[0], counts[0] + counts[1])
    assert (one[hub] ^ other[hub]).all()
    assert one[hub].sum() == 1
    one[hub] = other[hub] = True
    assert one.all()
    assert other.all()


def test_known_strategies_are_never_lost(random_problem: Maker, not_negative: Asks) -> None:
    for seed in range(20):
        problem = random_problem(seed)
        if not_negative(problem):
            truth = brute_force(problem)
            found = branch_and_bound(problem, 0.001, DEFAULT_LIMITS, incumbent=truth).found
            assert found.same_costs(truth)


def test_an_interruption_leaves_a_gap_that_holds(
    random_problem: Maker, not_negative: Asks, covers: Covers, interrupting: Interrupting
) -> None:
    """This also holds while a part is searched, which no longer waits in the queue."""
    ended = 0
    for seed in range(12):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        for at in range(2, 9):  # at the first nothing is known
            with interrupting(at) as watch:
                found = branch_and_bound(problem, 0.0005, SETTINGS[1]).found
            ended += watch.interrupted
            assert truth.dominates(found)
            assert found.within is None or covers(found, truth, found.within), (seed, at)
    assert ended


def test_where_costs_are_nothing_no_gap_is_stated() -> None:
    nothing = np.zeros(3, dtype=np.int64)
    nodes = tuple(Node(str(number), nothing, np.arange(3)) for number in range(2))
    edge = Edge.of(0, 1, np.arange(3), np.arange(3), np.zeros((3, 3), int), np.zeros((3, 3), int))
    found = branch_and_bound(Problem(nodes, (edge,)), 0.001, DEFAULT_LIMITS).found
    assert (found.memory.tolist(), found.time.tolist()) == ([0], [0])
    assert found.within is None or found.within <= 0.001


def test_a_chain_of_like_nodes_is_divided_in_the_middle() -> None:
    """By what fits the one end of the hull's edge and what fits the other: configurations of the
    first kind cost nothing beside one another, and much beside those of the second."""
    kinds = np.array([0, 1, 0, 1])
    memory, time = np.array([10, 20, 11, 21]), np.array([300, 100, 301, 101])
    nodes = tuple(Node(str(number), memory, time) for number in range(9))
    cost = 1_000 * (kinds[:, None] != kinds[None]).astype(np.int64)
    slots = np.arange(4)
    edges = tuple(
        Edge.of(number, number + 1, slots, slots, np.zeros_like(cost), cost) for number in range(8)
    )
    part = Subproblem(FlatGraph.of(Problem(nodes, edges)))
    part.bound([(1.0, 0.0), (1.0, 20.0), (1.0, 1e6)], 4, 0.0, 0.0)
    hull = part.hull()
    assert hull.memory.tolist() == [90, 180]
    weights = sides(part, hull.slope(0))
    part.bound(weights, 4, 0.0, 0.0)
    one, other = by_costs(part, weights)
    middle = slice(4 * 4, 5 * 4)
    assert sorted([one[middle].tolist(), other[middle].tolist()]) == [
        (kinds == 1).tolist(),
        (kinds == 0).tolist(),
    ]
    one[middle] = other[middle] = True
    assert one.all()
    assert other.all()


def test_a_part_is_divided_where_an_exchange_costs_most() -> None:
    """On both sides of the hull's edge: a node with much to lose on one side alone is not divided.
    Without a hull or bounds the node of the most configurations is halved."""
    costs = (
        ([0, 10, 5], [100, 90, 95]),
        ([0, 900, 950, 10], [1_000, 100, 90, 1_010]),
        ([0, 5_000], [100, 99]),
    )
    nodes = tuple(
        Node(str(number), np.array(memory) + 50, np.array(time) + 50)
        for number, (memory, time) in enumerate(costs)
    )
    sizes = [node.configurations for node in nodes]
    edges = tuple(
        Edge.of(
            number,
            number + 1,
            *(np.arange(size) for size in sizes[number : number + 2]),
            np.zeros(sizes[number : number + 2], dtype=np.int64),
            np.zeros(sizes[number : number + 2], dtype=np.int64),
        )
        for number in range(2)
    )
    part = Subproblem(FlatGraph.of(Problem(nodes, edges)))
    assert at_hub(part) is None
    widest = slice(sizes[0], sizes[0] + sizes[1])
    weights = sides(part, 1.0)
    one, other = by_costs(part, weights)
    assert one[widest].tolist() == [True, True, False, False]
    assert (one ^ other)[widest].all()
    part.bound([(1.0, 0.0), (1.0, 1.0), (0.0, 1.0), *weights], 4, 0.0, 0.0)
    one, other = by_costs(part, weights)
    assert one[widest].tolist() == [True, False, False, True]
    assert (one ^ other)[widest].all()
    one[widest] = other[widest] = True
    assert one.all()
    assert other.all()


class _Impatient(SearchLimits):
    """A stage stalls as soon as its gap does not narrow."""

    __slots__ = ()
    stalled_additions = 0.0  # type: ignore[assignment]


def test_a_stage_that_is_stalled_ends(positive_problem: Maker, covers: Covers) -> None:
    """It ends if the gap hardly narrows while more parts wait. The stated gap holds."""
    divides = SETTINGS[1]
    stalls = _Impatient(exact_states=0, branching_additions=1e13)
    wider = 0
    for seed in range(6):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        patient, ended = (
            branch_and_bound(problem, 0.0005, limits).found for limits in (divides, stalls)
        )
        assert patient.within is not None
        assert ended.within is not None
        assert patient.within <= 0.0005
        assert covers(ended, truth, ended.within)
        wider += ended.within > 0.0005
    assert wider


def test_it_goes_on_to_a_gap_that_nobody_asked_for(positive_problem: Maker, covers: Covers) -> None:
    """It states the gap that it has proven by then."""
    narrower = 0
    for seed in range(20):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        asked, gone_on = (
            branch_and_bound(problem, 0.2, DEFAULT_LIMITS, closes=closes).found
            for closes in (False, True)
        )
        assert asked.within is not None
        assert gone_on.within is not None
        assert gone_on.within <= asked.within <= 0.2
        assert covers(gone_on, truth, gone_on.within)
        narrower += gone_on.within <= DEFAULT_LIMITS.closing_gap < asked.within
    assert narrower > 3
