"""An exact frontier by bounds: what is left out is proven to be in no better strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, starmap

import numpy as np

from tensoropt.arrays import Int64Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict, whole_strategies
from tensoropt.search.bounds.bound_set import possible
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.proven_gap import narrowest, proven_gap
from tensoropt.search.bounds.weights import first_weights
from tensoropt.search.exact.ft_ldp import or_too_large, solve_graph
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.pareto.region import SearchRegion
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["bound_and_fix"]

# How often costs are moved along all edges and back before what is left is searched.
_SWEEPS = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Left:
    """What is left of a problem: configurations that may be in a better strategy.

    Attributes:
        problem: with these alone, numbered anew.
        numbers: int64[any] for each node, their numbers in the whole problem.
        bounds: of them, for some weights, without messages.
    """

    problem: Problem
    numbers: Sequence[Int64Array]
    bounds: Sequence[Bounds]

    def only(self, chosen: Sequence[Int64Array]) -> _Left:
        """With some of the configurations, by their numbers here."""
        start = self.start[:-1]
        own = np.concatenate([first + each for first, each in zip(start, chosen, strict=True)])
        return _Left(
            restrict(self.problem, chosen),
            [own[each] for own, each in zip(self.numbers, chosen, strict=True)],
            [
                replace(each, min_marginals=each.min_marginals[own], messages=each.messages[:0])
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

    def search(
        self, known: Frontier | None, epsilon: float, limits: SearchLimits, *, small: bool
    ) -> Outcome:
        """What is better than known strategies, if any, by a factor of more than 1 + ``epsilon``;
        the graph is simplified first where it is ``small``."""

        def solved() -> Outcome:
            graph = SearchGraph(self.problem, limits)
            if small:
                simplify(graph)
            if known is None:
                return solve_graph(graph, None, 0.0, limits.branch_states)
            region = SearchRegion.below(known.memory, known.time, epsilon)
            graph.prune([each.weights for each in self.bounds], region, _SWEEPS)
            return solve_graph(graph, None, 0.0, limits.context_branch_states)

        return or_too_large(solved)


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
        incumbent: prunes from the beginning.
        epsilon: at least 0.
        limits: of the rounds and of what is solved whole.
    """
    left = _Left(problem, [np.arange(node.configurations) for node in problem.nodes], ())
    known = incumbent
    so_far: Callable[[], Frontier] | None = None if incumbent is None else lambda: incumbent
    spent = 0
    for number, (count, sweeps) in enumerate(limits.fixing_rounds):
        tell("rounds of bounds", number, len(limits.fixing_rounds))
        spent += 2 * (count - 1) * sweeps * left.cells
        if number > 0 and spent > limits.fixing_additions:
            break
        weights = first_weights(left.problem, known, count)
        table = WeightedBounds(left.problem)
        left = replace(left, bounds=warm_bounds(table, weights, sweeps))
        before, whole = known, left.start[-1]
        known = _better(known, left, limits)
        if known is None or len(known) > limits.promising_points:
            return Outcome(known, is_too_large=True)
        alive = np.split(possible(left.bounds, known, epsilon), left.start[1:-1])
        if not all(own.any() for own in alive):
            return Outcome(_result(problem, known, left, epsilon == 0, epsilon))
        left = left.only([np.flatnonzero(own) for own in alive])
        so_far = partial(_approximate, problem, known, left, epsilon, so_far)
        keep(so_far)
        if left.start[-1] == whole and before is not None and known.same_costs(before):
            break  # nor will further rounds leave anything out
        share = limits.share(len(problem.nodes))
        if left.start[-1] > limits.exact_configurations * share:
            continue
        if left.cells > limits.exact_cells * share:
            continue
        last = left.search(known, epsilon, limits, small=False)
        if last.is_too_large:
            continue  # a further round may leave less
        if last.frontier is not None:
            known = _join(known, last.frontier, left)
        if last.frontier is None or last.frontier.exact:
            return Outcome(_result(problem, known, left, epsilon == 0, epsilon))
        break
    assert known is not None
    return Outcome(_approximate(problem, known, left, epsilon, so_far))


def _better(known: Frontier | None, left: _Left, limits: SearchLimits) -> Frontier | None:
    """The frontier of what is known and what the most promising configurations make; None where
    nothing is known and these are too many to be searched."""
    part = left.only(_promising(left, limits))
    found = part.search(known, 0.0, limits, small=True).frontier
    return known if found is None else _join(known, found, part)


def _promising(left: _Left, limits: SearchLimits) -> list[Int64Array]:
    """The configurations of the next small problem.

    As many of each node as its size allows: the four best for every weight, or fewer; the best for
    every weight, or for every second one, or third.
    """
    lines, start = [each.min_marginals for each in left.bounds], left.start
    ways = [(lines, 4), (lines, 3), (lines, 2), (lines, 1)]
    ways += [(lines[::step], 1) for step in range(2, len(lines))]
    most = limits.promising_configurations * limits.share(len(left.numbers))
    for some, count in ways:
        best = [
            np.unique([np.argsort(own[at], kind="stable")[:count] for own in some])
            for at in starmap(slice, pairwise(start))
        ]
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


def _approximate(
    problem: Problem,
    known: Frontier,
    left: _Left,
    epsilon: float,
    earlier: Callable[[], Frontier] | None,
) -> Frontier:
    """What is known, and by how much what is left, or was left out, can better it.

    Bounds for other weights may prove less than the earlier ones did, of a frontier not as good.
    """
    within = proven_gap(left.bounds, known, left.start)
    if within is not None:
        within = max(within, epsilon)
    if earlier is not None:
        within = narrowest(within, earlier().within)
    return _result(problem, known, left, False, within)


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
