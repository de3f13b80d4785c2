"""Certificates against enumeration: linear programs, reductions, and bounds against none."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Frontier, Node, Problem, frontier_tracking
from tensoropt.search.limits import SearchLimits
from tests.oracles.certificates.comparison import compared, limits_of, worth_of_a_byte
from tests.oracles.certificates.fixing import fixed
from tests.oracles.certificates.ilp import least_time
from tests.oracles.certificates.reduction import reduced


def problem_of(seed: int, top: int, nodes: int = 6, most: int = 4) -> Problem:
    """A random graph, cycles included; small ``top`` makes ties and zero costs."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, most + 1, nodes).tolist()
    own = tuple(
        Node(f"n{n}", random.integers(0, top, k), random.integers(0, top, k))
        for n, k in enumerate(counts)
    )
    edges = []
    for target in range(1, nodes):
        for source in sorted({int(random.integers(target)), int(random.integers(target))}):
            slots = [int(random.integers(1, counts[end] + 1)) for end in (source, target)]
            memory = random.integers(0, top, slots) * int(random.integers(2))
            edges.append(
                Edge.of(
                    source,
                    target,
                    random.integers(0, slots[0], counts[source]),
                    random.integers(0, slots[1], counts[target]),
                    memory,
                    random.integers(0, top, slots),
                )
            )
    return Problem(own, tuple(edges))


Problems = st.builds(problem_of, st.integers(0, 2**32), st.sampled_from([2, 5, 1000, 10**9]))


@settings(max_examples=20)
@given(Problems)
def test_programs_find_what_enumeration_finds(problem: Problem) -> None:
    truth, left = brute_force(problem), reduced(problem)
    for limit in limits_of(truth, 3):
        found = least_time(problem, left, limit, 60)
        assert found.optimal
        assert found.strategy is not None
        memory, time = problem.cost(found.strategy)
        assert memory <= limit
        assert time == found.nanoseconds == truth.time[truth.fastest(limit)]
        assert compared(problem, left, truth, limit, 60).verdict == "equal"


def test_no_strategy_needs_less_than_the_least() -> None:
    problem = problem_of(1, 1000)
    least = int(brute_force(problem).memory[0])
    found = least_time(problem, reduced(problem), least - 1, 60)
    assert found.strategy is None
    assert found.bound == np.inf


@settings(max_examples=50)
@given(Problems)
def test_what_is_reduced_has_the_same_frontier(problem: Problem) -> None:
    left = reduced(problem)
    nodes = tuple(
        Node("n", memory, time) for memory, time in zip(left.memory, left.time, strict=True)
    )
    edges = tuple(
        Edge.of(e.source, e.target, e.source_slots, e.target_slots, e.memory, e.time)
        for e in left.edges
    )
    small = brute_force(Problem(nodes, edges))
    assert small.same_costs(brute_force(problem))
    for memory, time, choices in small:
        assert problem.cost(left.strategy(choices.tolist())) == (memory, time)


@settings(max_examples=30)
@given(Problems)
def test_what_is_fixed_keeps_every_strategy_as_good_as_claimed(problem: Problem) -> None:
    truth, left = brute_force(problem), reduced(problem)
    for limit in limits_of(truth, 3):
        best = int(truth.time[truth.fastest(limit)])
        worth = worth_of_a_byte(truth, limit)
        for claimed in (best, best + 1 + best // 10):  # as it is, and too slow
            fewer = fixed(left, limit, claimed, worth)
            assert fewer is not None
            assert fewer.variables <= left.variables
            assert fewer.bound <= best
            found = least_time(problem, fewer.left, limit, 60, fewer.cells)
            assert found.nanoseconds == best
            assert found.variables == fewer.variables
        if best:
            fewer = fixed(left, limit, best - 1, worth)
            if fewer is not None:
                assert fewer.bound < best
                found = least_time(problem, fewer.left, limit, 60, fewer.cells)
                assert found.nanoseconds != best - 1


def test_a_frontier_that_is_wrong_is_found_out() -> None:
    """A point left out, and one that no strategy has."""
    problem = next(p for p in (problem_of(s, 1000) for s in range(99)) if len(brute_force(p)) > 3)
    truth, left = brute_force(problem), reduced(problem)
    without = Frontier(truth.memory[::2], truth.time[::2], truth.strategies[::2])
    limit = int(truth.memory[1])
    assert compared(problem, left, without, limit, 60).contradicts
    inexact = Frontier(truth.memory[::2], truth.time[::2], truth.strategies[::2], exact=False)
    assert compared(problem, left, inexact, limit, 60).verdict == "better"
    time = truth.time.copy()
    time[1] -= 1
    invented = Frontier(truth.memory, time, truth.strategies)
    assert compared(problem, left, invented, limit, 60).contradicts


@settings(max_examples=60)
@given(Problems)
def test_bounds_change_no_frontier(problem: Problem) -> None:
    """The plain solver's frontier, with bounds however small the problem is."""
    found = frontier_tracking(problem, limits=SearchLimits(bounded_cells=0, plain_states=0))
    assert found.exact
    assert found.same_costs(frontier_tracking(problem, bounds=False))
    assert found.same_costs(brute_force(problem))
