"""An exact frontier from small problems: what is left out is proven not to be on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array, offsets_of
from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.problem.parallel_edges import merge_parallel_edges
from tensoropt.problem.restrict import remaining_slots, restrict
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.pruning_context import PruningContext, Staircase, pruning_context
from tensoropt.search.bounds.reduced_cost_fixing import (
    best_of,
    possible,
    proven_within,
)
from tensoropt.search.outcome import Outcome, Status
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.watch import keep, tell

__all__ = ["bounded_frontier", "can_bound", "weights_of"]


# Below it, bounds cost more than they save.
_SMALL_CELLS = 3_000
# What is left is searched whole if it has no more configurations, and cells of edges, than this.
_MOST_LEFT = 8_000
_MOST_CELLS_LEFT = 500_000
# Weights and sweeps of every round: few while the problem is large.
_ROUNDS = ((6, 3), (7, 12), (24, 12), (48, 16))
# Looks at cells, of all rounds together: no further round begins that would take more than that.
# A count and not seconds, so that the frontier is the same on every machine.
_MOST_WORK = 4e10
_SPREAD = 1e3
# Configurations of a small problem.
_MOST_PROMISING = 2_500
# Of more nodes, these numbers of configurations and cells are larger in proportion.
_MANY_NODES = 800


def can_bound(problem: Problem) -> bool:
    """Whether bounds apply, costs being nowhere negative, and are worth their time."""
    cells = sum(edge.time.size for edge in problem.edges)
    return cells > _SMALL_CELLS and not problem.has_negative


def bounded_frontier(
    problem: Problem,
    solve: Callable[[Problem, PruningContext | None], Outcome],
    epsilon: float = 0.0,
) -> Frontier:
    """The frontier of a problem with many configurations, by solving problems with few.

    In rounds: bounds for several weights say for every configuration what a strategy with it
    costs at least. The configurations with the lowest bounds make a small problem, whose solution
    is a frontier of strategies. Configurations that by their bounds cannot better it are left out
    for good. When little is left, that is solved too, and the two frontiers together are the
    exact one: every strategy either has a configuration that was left out, so that a known one is
    as good in both costs, or it was in what was solved at last. When nothing is left at some node,
    no strategy at all is better, and the known frontier is exact.

    With ``epsilon`` only what is better by more than a factor of 1 + epsilon counts. Where too much
    is left, the known frontier is returned, and by how much it can be bettered at most.

    Args:
        problem: with costs that are not negative.
        solve: solves a problem; need not be exact, but its strategies are valid.
        epsilon: at least 0.
    """
    problem = merge_parallel_edges(problem)
    kept = [np.arange(node.configurations) for node in problem.nodes]
    left = problem
    known: Frontier | None = None
    found: list[Bounds] = []
    spent = 0
    for number, (weights, sweeps) in enumerate(_ROUNDS):
        tell("rounds of bounds", number, len(_ROUNDS))
        spent += 2 * weights * sweeps * sum(edge.time.size for edge in left.edges)
        if known is not None and spent > _MOST_WORK:
            break
        table = WeightedBounds(left)
        found = warm_bounds(table, weights_of(left, known, weights), sweeps, found)
        best = _promising(found, table)
        known = _bettered(known, left, best, table, found, solve, kept)
        alive = _split(possible(found, known.memory, known.time, epsilon), table.start)
        if not all(own.any() for own in alive):
            return _result(problem, known, kept, exact=epsilon == 0, within=epsilon)
        chosen = [np.flatnonzero(own) for own in alive]
        found = _carried(found, table, left, chosen)
        kept = _renumbered(kept, chosen)
        left = restrict(left, chosen)
        keep(partial(_so_far, problem, known, kept, found))
        cells = sum(edge.time.size for edge in left.edges)
        states = sum(node.configurations for node in left.nodes)
        more = _times_as_many(len(left.nodes))
        if states <= more * _MOST_LEFT and cells <= more * _MOST_CELLS_LEFT:
            table = WeightedBounds(left)
            staircase = Staircase.below(known.memory, known.time, epsilon)
            last = solve(left, pruning_context(left, table, found, staircase))
            if last.is_too_large:
                continue  # a further round may leave less
            if last.frontier is not None:
                known = _joined(known, last.frontier, kept)
            if last.status is Status.OPTIMAL:
                return _result(problem, known, kept, exact=epsilon == 0, within=epsilon)
            break
    assert known is not None
    return _so_far(problem, known, kept, found)


def _times_as_many(nodes: int) -> float:
    """How many times as large what is searched whole may be, for so many nodes."""
    return max(1.0, nodes / _MANY_NODES)


def _so_far(
    problem: Problem, known: Frontier, kept: Sequence[Int64Array], found: Sequence[Bounds]
) -> Frontier:
    """What is known, and by how much what is left can better it."""
    starts = offsets_of([own.size for own in kept])
    return _result(problem, known, kept, exact=False, within=proven_within(found, known, starts))


def _bettered(
    known: Frontier | None,
    left: Problem,
    best: Sequence[Int64Array],
    table: WeightedBounds,
    found: Sequence[Bounds],
    solve: Callable[[Problem, PruningContext | None], Outcome],
    kept: Sequence[Int64Array],
) -> Frontier:
    """The frontier of what is known and what the most promising configurations make."""
    part = restrict(left, best)
    seen: PruningContext | None = None
    if known is not None:
        staircase = Staircase.below(known.memory, known.time)
        carried = _carried(found, table, left, best)
        seen = pruning_context(part, WeightedBounds(part), carried, staircase)
    new = solve(part, seen).frontier
    if new is not None:
        return _joined(known, new, _renumbered(kept, best))
    if known is None:
        raise SearchSizeError("the most promising configurations are too many to be searched")
    return known


def _carried(
    found: Sequence[Bounds], table: WeightedBounds, problem: Problem, chosen: Sequence[Int64Array]
) -> list[Bounds]:
    """The bounds for ``restrict(problem, chosen)``."""
    own = np.concatenate(
        [first + numbers for first, numbers in zip(table.start[:-1], chosen, strict=True)]
    )
    slots = remaining_slots(problem, chosen)
    return [
        replace(each, of_configuration=each.of_configuration[own], given=each.given[slots])
        for each in found
    ]


def _promising(found: Sequence[Bounds], table: WeightedBounds) -> list[Int64Array]:
    """The configurations of the next small problem.

    As many of each node as its size allows: the four best for every weight, or fewer; the best for
    every weight, or for every second one, or third.
    """
    ways = [(found, 4), (found, 3), (found, 2), (found, 1)]
    ways += [(found[::step], 1) for step in range(2, len(found))]
    for bounds, count in ways:
        best = best_of(bounds, table.start, count)
        if sum(own.size for own in best) <= _times_as_many(len(best)) * _MOST_PROMISING:
            return best
    return best


def weights_of(problem: Problem, known: Frontier | None, count: int) -> list[tuple[float, float]]:
    """Pairs of weights, of a nanosecond and of a byte: time alone, memory alone, and between.

    At first around what a byte is worth on the whole; then from slopes of the known frontier's
    hull, which its corners are nearest to.
    """
    if known is None or len(known) < 3:
        worth = problem.byte_worth
        between = np.geomspace(worth / _SPREAD, worth * _SPREAD, count - 1)
    else:
        slopes = _hull_slopes(known.memory, known.time)
        places = np.linspace(0, slopes.size - 1, min(count, slopes.size)).astype(np.int64)
        between = slopes[np.unique(places)]
    return [(1.0, 0.0), *((1.0, float(weight)) for weight in between), (0.0, 1.0)]


def _hull_slopes(memory: Int64Array, time: Int64Array) -> Float64Array:
    """Nanoseconds per byte along the lower convex hull of a frontier, steepest first."""
    corner = np.array(hull_of(memory, time))
    slopes: Float64Array = -np.diff(time[corner]) / np.diff(memory[corner])
    return slopes


def _split(marks: BoolArray, start: Int64Array) -> list[BoolArray]:
    return np.split(marks, start[1:-1])


def _renumbered(kept: Sequence[Int64Array], chosen: Sequence[Int64Array]) -> list[Int64Array]:
    return [own[numbers] for own, numbers in zip(kept, chosen, strict=True)]


def _joined(known: Frontier | None, new: Frontier, kept: Sequence[Int64Array]) -> Frontier:
    """The frontier of both; ``new`` numbers what is in ``kept``."""
    strategies = np.stack(
        [own[new.strategies[:, node]] for node, own in enumerate(kept)], axis=1
    ).astype(np.int32)
    found = replace(new, strategies=strategies, exact=False, within=None)
    if known is None:
        return found
    return replace(joined_frontier(known, found), eliminations=found.eliminations)


def _result(
    problem: Problem,
    known: Frontier,
    kept: Sequence[Int64Array],
    *,
    exact: bool,
    within: float | None,
) -> Frontier:
    states = sum(node.configurations for node in problem.nodes)
    return Frontier(
        known.memory,
        known.time,
        known.strategies,
        # What only proposed strategies was not needed to be exact.
        {**known.eliminations, "heuristic": 0},
        exact=exact,
        within=within,
        left_out=states - sum(own.size for own in kept),
    )
