"""An exact frontier by bounds: what is left out is proven to be in no better strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tensoropt.arrays import Int64Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import remaining_slots, restrict, whole_strategies
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.proven_gap import proven_gap
from tensoropt.search.bounds.pruning_context import PruningContext, pruning_context
from tensoropt.search.bounds.reduced_cost_fixing import best_of, possible
from tensoropt.search.bounds.weights import first_weights
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome, Status
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.pareto.region import SearchRegion
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["bound_and_fix"]


@dataclass(frozen=True, slots=True, eq=False)
class _Left:
    """What is left of a problem: configurations that may be in a better strategy.

    Attributes:
        problem: with these alone, numbered anew.
        numbers: int64[any] for each node, their numbers in the whole problem.
        bounds: of them, for some weights.
    """

    problem: Problem
    numbers: Sequence[Int64Array]
    bounds: Sequence[Bounds]

    @classmethod
    def all(cls, problem: Problem) -> _Left:
        return cls(problem, [np.arange(node.configurations) for node in problem.nodes], ())

    def only(self, chosen: Sequence[Int64Array]) -> _Left:
        """With some of the configurations, by their numbers here."""
        start = self.start[:-1]
        own = np.concatenate([first + each for first, each in zip(start, chosen, strict=True)])
        slots = remaining_slots(self.problem, chosen)
        return _Left(
            restrict(self.problem, chosen),
            [own[each] for own, each in zip(self.numbers, chosen, strict=True)],
            [
                replace(each, min_marginals=each.min_marginals[own], messages=each.messages[slots])
                for each in self.bounds
            ],
        )

    @property
    def start(self) -> Int64Array:
        """int64[nodes + 1], where each node's configurations are in the bounds."""
        return offsets_of([own.size for own in self.numbers])

    @property
    def cells(self) -> int:
        """Of all edges."""
        return sum(edge.time.size for edge in self.problem.edges)

    def context(self, incumbent: Frontier, epsilon: float = 0.0) -> PruningContext:
        """What prunes an exact search of this."""
        region = SearchRegion.below(incumbent.memory, incumbent.time, epsilon)
        return pruning_context(self.problem, self.bounds, region)


@interruptible
def bound_and_fix(
    problem: Problem, incumbent: Frontier | None, epsilon: float, limits: SearchLimits
) -> Outcome:
    """The frontier of a problem with many configurations, by solving problems with few; see
    `Solver`.

    In rounds: bounds for several weights say for every configuration what a strategy with it
    costs at least. The configurations with the lowest bounds make a small problem, whose solution
    is a frontier of strategies. Configurations that by their bounds cannot better it are left out
    for good (reduced-cost fixing). When little is left, that is solved too, and the two frontiers
    together are the exact one: every strategy either has a configuration that was left out, so that
    a known one is as good in both costs, or it was in what was solved at last. When nothing is left
    at some node, no strategy at all is better, and the known frontier is exact.

    With ``epsilon`` only what is better by more than a factor of 1 + epsilon counts. Where too much
    is left, the known frontier is returned with its proven gap.

    Args:
        problem: with costs that are not negative.
        incumbent: prunes from the beginning; returned where the problem is too large.
        epsilon: at least 0.
        limits: of the rounds and of what is solved whole.
    """
    left = _Left.all(problem)
    known = incumbent
    spent = 0
    for number, (count, sweeps) in enumerate(limits.fixing_rounds):
        tell("rounds of bounds", number, len(limits.fixing_rounds))
        spent += 2 * (count - 1) * sweeps * left.cells
        if number > 0 and spent > limits.fixing_additions:
            break
        weights = first_weights(left.problem, known, count)
        table = WeightedBounds(left.problem)
        left = replace(left, bounds=warm_bounds(table, weights, sweeps, left.bounds))
        known = _better(known, left, limits)
        if known is None:
            return Outcome.too_large(incumbent)
        alive = np.split(possible(left.bounds, known, epsilon), left.start[1:-1])
        if not all(own.any() for own in alive):
            return Outcome.of(_result(problem, known, left, epsilon == 0, epsilon))
        left = left.only([np.flatnonzero(own) for own in alive])
        keep(partial(_approximate, problem, known, left))
        share = limits.share(len(problem.nodes))
        if left.start[-1] > limits.exact_configurations * share:
            continue
        if left.cells > limits.exact_cells * share:
            continue
        context = left.context(known, epsilon)
        last = ft_ldp(left.problem, None, 0.0, limits, context=context)
        if last.is_too_large:
            continue  # a further round may leave less
        if last.frontier is not None:
            known = _join(known, last.frontier, left)
        if last.status is Status.OPTIMAL:
            return Outcome.of(_result(problem, known, left, epsilon == 0, epsilon))
        break
    assert known is not None
    return Outcome.of(_approximate(problem, known, left))


def _better(known: Frontier | None, left: _Left, limits: SearchLimits) -> Frontier | None:
    """The frontier of what is known and what the most promising configurations make; None where
    nothing is known and these are too many to be searched."""
    part = left.only(_promising(left, limits))
    context = None if known is None else part.context(known)
    found = ft_ldp(part.problem, None, 0.0, limits, context=context).frontier
    return known if found is None else _join(known, found, part)


def _promising(left: _Left, limits: SearchLimits) -> list[Int64Array]:
    """The configurations of the next small problem.

    As many of each node as its size allows: the four best for every weight, or fewer; the best for
    every weight, or for every second one, or third.
    """
    bounds, start = left.bounds, left.start
    ways = [(bounds, 4), (bounds, 3), (bounds, 2), (bounds, 1)]
    ways += [(bounds[::step], 1) for step in range(2, len(bounds))]
    most = limits.promising_configurations * limits.share(len(left.numbers))
    for some, count in ways:
        best = best_of(some, start, count)
        if sum(own.size for own in best) <= most:
            break
    return best


def _join(known: Frontier | None, new: Frontier, left: _Left) -> Frontier:
    """The frontier of what is known and what was found in a part."""
    strategies = whole_strategies(left.numbers, new.strategies)
    found = replace(new, strategies=strategies, exact=False, within=None)
    if known is None:
        return found
    return replace(joined_frontier(known, found), eliminations=found.eliminations)


def _approximate(problem: Problem, known: Frontier, left: _Left) -> Frontier:
    """What is known, and by how much what is left can better it."""
    return _result(problem, known, left, False, proven_gap(left.bounds, known, left.start))


def _result(
    problem: Problem, known: Frontier, left: _Left, exact: bool, within: float | None
) -> Frontier:
    states = sum(node.configurations for node in problem.nodes)
    return replace(
        known,
        # What only proposed strategies was not needed to be exact.
        eliminations={**known.eliminations, "heuristic": 0},
        exact=exact,
        within=within,
        left_out=states - int(left.start[-1]),
    )
