"""Bounds and what is left out by them, against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import OptionError
from tensoropt.search import Frontier, Node, Problem, frontier_tracking
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.corner_gaps import proven_gap
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.pareto.region import SearchRegion
from tensoropt.search.tolerances import ROUNDING

Maker = Callable[[int], Problem]

SEEDS = range(100)
# Costs of edges are rounded down to some 2**-30 of the largest.
UNITS = 1e-8
WEIGHTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 0.3), (1.0, 7.0))


def every_strategy(problem: Problem) -> npt.NDArray[np.int64]:
    ranges = [range(node.configurations) for node in problem.nodes]
    return np.array(list(itertools.product(*ranges)), dtype=np.int64)


def possible(bounds: Sequence[Bounds], region: SearchRegion) -> npt.NDArray[np.bool_]:
    """Which configurations may be those of a strategy in a region."""
    lines = np.array([each.min_marginals for each in bounds])
    found = BoundSet([each.weights for each in bounds], region)
    return found.possible(np.ascontiguousarray(lines.T))


def test_no_strategy_is_below_a_bound(positive_problem: Maker) -> None:
    tight = 0
    for seed in SEEDS:
        problem = positive_problem(seed)
        strategies = every_strategy(problem)
        memory, time = problem.costs(strategies)
        table = WeightedBounds(problem)
        for per_nanosecond, per_byte in WEIGHTS:
            found = table.bounds(per_nanosecond, per_byte, sweeps=3)
            cost = per_nanosecond * time + per_byte * memory
            assert found.least <= cost.min() * (1 + ROUNDING)
            tight += found.least >= cost.min() * (1 - UNITS)
            for node, start in enumerate(table.start[:-1]):
                least = np.full(problem.nodes[node].configurations, np.inf)
                np.minimum.at(least, strategies[:, node], cost)
                own = found.min_marginals[start : start + least.size]
                assert (own <= least * (1 + ROUNDING)).all()
    assert tight > 300  # of 400, of which many are no trees


def test_no_strategy_is_below_a_bound_begun_from_what_another_weight_gave(
    positive_problem: Maker,
) -> None:
    seen = 0
    for seed in SEEDS:
        problem = positive_problem(seed)
        if problem.edges_take_memory:
            continue
        _, time = problem.costs(every_strategy(problem))
        table = WeightedBounds(problem)
        for per_byte in (3.0, 1e11, 1e17):  # beside the last one times are less than roundings
            messages = table.bounds(1.0, per_byte, sweeps=2).messages
            (found,) = table.all_bounds([(1.0, 0.0)], 2, [messages])
            assert found.least <= time.min() * (1 + ROUNDING)
            seen += 1
    assert seen > 30


def test_bounds_are_exact_on_a_chain_after_one_sweep(positive_problem: Maker) -> None:
    for seed in range(0, 300, 10):  # the seeds of chains
        problem = positive_problem(seed)
        strategies = every_strategy(problem)
        memory, time = problem.costs(strategies)
        table = WeightedBounds(problem)
        found = table.bounds(1.0, 0.5, sweeps=1)
        for node, start in enumerate(table.start[:-1]):
            least = np.full(problem.nodes[node].configurations, np.inf)
            np.minimum.at(least, strategies[:, node], time + 0.5 * memory)
            own = found.min_marginals[start : start + least.size]
            np.testing.assert_allclose(own, least, rtol=UNITS)


def test_what_is_left_out_is_on_no_frontier(positive_problem: Maker) -> None:
    """Only configurations that may better a frontier stay."""
    dropped = 0
    for seed in SEEDS:
        problem = positive_problem(seed)
        truth = brute_force(problem)
        half = Frontier(truth.memory[::2], truth.time[::2], truth.strategies[::2], exact=False)
        table = WeightedBounds(problem)
        found = [table.bounds(*pair, sweeps=3) for pair in WEIGHTS]
        region = SearchRegion.below(half.memory, half.time)
        marks = np.split(possible(found, region), table.start[1:-1])
        for point in truth:
            if point.memory not in half.memory:
                assert all(own[k] for own, k in zip(marks, point.strategy, strict=True))
        dropped += sum(int((~own).sum()) for own in marks)
    assert dropped > 150


def test_within_is_where_all_nodes_are_possible_below_some_corner(
    positive_problem: Maker,
) -> None:
    compared = 0
    for seed in range(100):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        known = Frontier(truth.memory[::2], truth.time[::2], truth.strategies[::2], exact=False)
        table = WeightedBounds(problem)
        found = [table.bounds(*pair, sweeps=2) for pair in WEIGHTS]
        within = proven_gap(found, known, table.start)
        if not within:
            continue
        compared += 1
        for share, is_possible in ((within * 0.999, True), (within * 1.001 + 1e-9, False)):
            region = SearchRegion.below(known.memory, known.time, share)
            corners = zip(region.memory, region.time, strict=True)
            alive = [
                possible(found, SearchRegion(np.array([memory]), np.array([time])))
                for memory, time in corners
                if memory and time  # nothing costs less than 0
            ]
            nodes = np.logical_or.reduceat(alive, table.start[:-1], axis=1)
            assert nodes.all(axis=1).any() == is_possible
    assert compared > 20


def test_epsilon_is_not_negative() -> None:
    problem = Problem((Node("n", np.ones(1, np.int64), np.ones(1, np.int64)),), ())
    with pytest.raises(OptionError, match="Got -1"):
        frontier_tracking(problem, epsilon=-1)
