"""An exact frontier by eliminations first, and bounds after them.

In a problem of few cells most nodes can be eliminated at once, and the resulting tables have hardly
more points than cells. Bounds of the remaining graph are closer than those of the whole problem,
and cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tensoropt.arrays import Float64Array, offsets_of
from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.corner_gaps import proven_gap
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.effort import SWEEPS, WEIGHTS
from tensoropt.search.exact.ft_ldp import (
    eliminate_all,
    frontier_of,
    or_too_large,
    solve_graph,
)
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.like_subgraphs import Memo
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.pareto.hull import hull_slopes
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.tolerances import MOST
from tensoropt.search.watch import interruptible, keep

__all__ = ["first_weights", "simplified", "simplify_first"]


def simplified(problem: Problem, limits: SearchLimits) -> SearchGraph | None:
    """Return a problem as a simplified graph (`simplify`).

    Returns:
        None where the problem has too many cells, or its tables become too large.
    """
    if sum(edge.time.size for edge in problem.edges) > limits.few_cells:
        return None
    try:
        graph = SearchGraph(problem, limits)
        simplify(graph)
    except SearchSizeError:
        return None
    return graph


@interruptible
def simplify_first(
    problem: Problem, epsilon: float, limits: SearchLimits, simple: SearchGraph | None = None
) -> Outcome:
    """Return the frontier of a problem with few cells.

    If few states remain and eliminations take few points, they give the frontier. Otherwise bounds
    of the simplified graph for several weights say which states are promising, and the graph is
    searched with these alone by the paper's algorithm 2. New bounds then drop everything that
    cannot better the strategies found, and the remaining graph is searched: both results together
    are the exact frontier. Where bounds drop little, like subgraphs are searched once, if there are
    any; else the remaining graph gets fewer additions.

    Args:
        problem: with costs that are not negative.
        epsilon: strategies count that are better by more than a factor of 1 + epsilon.
        limits: of cells and states.
        simple: the `simplified` problem, if it was made; it is not changed.

    Returns:
        Too large where there are too many cells or states, tables become too large or are about to,
            or heuristic eliminations are needed; then with the frontier of promising states, if it
            was found, and the additions of the search after it.
    """
    graph = simple or simplified(problem, limits)
    if graph is None:
        return Outcome(None, is_too_large=True)
    if sum(graph.states(node) for node in graph.nodes) <= limits.plain_states:
        plain = graph.copy(limits.trial)
        outcome = or_too_large(lambda: solve_graph(plain, None, 0.0, limits.branch_states))
        if not outcome.is_too_large and outcome.found.exact:
            return outcome
    return or_too_large(lambda: _search(problem, graph, epsilon, limits))


def _search(problem: Problem, graph: SearchGraph, epsilon: float, limits: SearchLimits) -> Outcome:
    weights = first_weights(problem, None, WEIGHTS - 1)  # an odd number: one is a byte's worth
    bounds = graph.copy().bound(weights, SWEEPS)
    promising = graph.copy(limits.trial)
    promising.restrict({node: np.unique(own.argmin(axis=0)) for node, own in bounds.items()})
    eliminate_all(promising, limits.branch_states)
    known = replace(frontier_of(promising), exact=False, within=None)
    known_with_gap = partial(_with_gap, known, weights, bounds)
    keep(known_with_gap)
    rest = graph.copy()
    region = SearchRegion.below(known.memory, known.time, epsilon)
    better = BoundSet(weights, region)
    # Bounds for other weights are cheaper once the first ones have dropped states.
    rest.restrict({node: np.flatnonzero(better.possible(own)) for node, own in bounds.items()})
    if not rest.is_pruned_out:
        rest.prune(first_weights(problem, known, 2 * WEIGHTS), region, 2 * SWEEPS)
    if not rest.is_pruned_out and rest.points > MOST * graph.points:
        if graph.is_alike:
            rest = graph.copy()
            rest.memo = Memo()
        else:
            additions = min(limits.unlike_additions, limits.table_additions)
            rest = rest.copy(replace(limits, table_additions=additions))
    outcome = or_too_large(lambda: solve_graph(rest, known, epsilon, limits.context_branch_states))
    if outcome.is_too_large:
        taken = rest.limits.table_additions - rest.pointers.additions
        return Outcome(known_with_gap(), is_too_large=True, additions=taken)
    if rest.counts["heuristic"]:
        return Outcome(joined_frontier(known_with_gap(), outcome.found), is_too_large=True)
    return outcome


def _with_gap(
    known: Frontier, weights: Sequence[Weights], bounds: Mapping[int, Float64Array]
) -> Frontier:
    """Add the gap that bounds of all states prove to a frontier; bounds are float64[states, W]
    of each node."""
    rows = np.ascontiguousarray(np.concatenate(list(bounds.values())).T)
    lines = [
        Bounds(pair, float(row.min()), row, row[:0])
        for pair, row in zip(weights, rows, strict=True)
    ]
    start = offsets_of([len(own) for own in bounds.values()])
    return replace(known, within=proven_gap(lines, known, start))


# Without a known frontier, weights of a byte reach from its worth divided by this to its worth
# times this.
_SPREAD = 1e3


def first_weights(problem: Problem, incumbent: Frontier | None, count: int) -> list[Weights]:
    """Return at most ``count`` pairs of weights: time alone, memory alone, and pairs between.

    Without a known frontier the pairs are spread around the worth of a byte. Otherwise they are
    slopes of its convex hull, whose corners are nearest to them.
    """
    if incumbent is None or len(incumbent) < 3:
        between = problem.byte_worth * np.geomspace(1 / _SPREAD, _SPREAD, count - 2)
    else:
        slopes = hull_slopes(incumbent.memory, incumbent.time)
        places = np.linspace(0, slopes.size - 1, min(count - 2, slopes.size)).astype(np.int64)
        between = slopes[np.unique(places)]
    return [(1.0, 0.0), *((1.0, float(slope)) for slope in between), (0.0, 1.0)]
