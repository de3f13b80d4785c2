"""An exact search of a subproblem, for strategies better than known ones.

Bounds for three slopes prune the subproblem to the search region. The remaining graph is
eliminated, as long as that takes few points and additions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.branching.known_points import Points
from tensoropt.search.branching.subproblem import Subproblem
from tensoropt.search.effort import EXACT_SLOPES, MERGED, SWEEPS
from tensoropt.search.exact.ft_ldp import eliminate_all
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.region import SearchRegion

__all__ = ["ExactSearch", "search_exactly"]


class ExactSearch(NamedTuple):
    """The result of an exact search of a subproblem.

    Attributes:
        points: strategies, if the search ended and there are any in the region.
        additions: the additions that it took, as those of sweeps.
        is_whole: whether there are no other points in the region.
    """

    points: Points | None
    additions: float
    is_whole: bool


def search_exactly(
    part: Subproblem,
    region: SearchRegion,
    epsilon: float,
    worth: float,
    limits: SearchLimits,
    grain: int = 0,
) -> ExactSearch:
    """Search a subproblem for strategies in a region.

    Args:
        part: the subproblem.
        region: of strategies better than known ones.
        epsilon: share of its time by which a returned strategy may be slower than one left out.
        worth: nanoseconds that a byte is worth in the region, approximately.
        limits: of points and additions, `SearchLimits.exact`.
        grain: nanoseconds by which points of one table are apart, if not all are wanted.
    """
    weights = [(1.0, worth * factor) for factor in EXACT_SLOPES]
    spent = limits.line_additions + sweep_additions(2 * SWEEPS, part.cells, len(weights))
    try:
        graph = SearchGraph(part.graph, limits)
    except SearchSizeError:
        return ExactSearch(None, spent, False)
    graph.grain = grain
    try:
        graph.prune(weights, region, 2 * SWEEPS)
        if not graph.is_pruned_out:
            simplify(graph)
            eliminate_all(graph, limits.context_branch_states)
        is_whole = graph.counts["heuristic"] == 0
    except SearchSizeError:
        return ExactSearch(None, spent + _merged(graph), False)
    points = None if graph.is_pruned_out else _points(graph, epsilon)
    return ExactSearch(points, spent + _merged(graph), is_whole)


def _merged(graph: SearchGraph) -> float:
    """The additions that a graph's tables took."""
    return MERGED * (graph.limits.table_additions - max(0.0, graph.pointers.additions))


def _points(graph: SearchGraph, epsilon: float) -> Points:
    """Return the strategies of a graph without nodes, within a factor."""
    frontier = graph.constant
    some = _thinned(frontier.time, epsilon)
    strategies = graph.pointers.unroll(frontier.identity[some], graph.size)
    return Points(frontier.memory[some], frontier.time[some], strategies)


def _thinned(time: Int64Array, epsilon: float) -> Int64Array:
    """Return the points of a frontier to keep.

    Each other point has a kept one of less memory and at most 1 + epsilon times its time.
    """
    kept = [0]
    for point, own in enumerate(time.tolist()):
        if time[kept[-1]] > own * (1 + epsilon):
            kept.append(point)
    if kept[-1] != time.size - 1:
        kept.append(time.size - 1)
    return np.array(kept, dtype=np.int64)
