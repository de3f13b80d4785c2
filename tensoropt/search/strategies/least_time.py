"""The fastest strategy of a problem, whatever memory it takes: what solvers of one objective do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.search.frontier import Frontier
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.pruning import restricted
from tensoropt.search.strategies.least_sum import least_sum, time_terms

__all__ = ["least_time", "least_time_among", "single_strategy"]

Int64Array = npt.NDArray[np.int64]

# Of a table of the elimination; where it would be larger, frontier tracking takes over.
_MOST_CELLS = 1 << 24


def single_strategy(problem: Problem, strategy: npt.ArrayLike, *, exact: bool = True) -> Frontier:
    """The frontier of a solver that finds one strategy, with its costs by equation 3."""
    row = np.asarray(strategy, dtype=np.int32)
    memory, time = problem.cost([int(number) for number in row])
    return Frontier(np.array([memory]), np.array([time]), row[None], exact=exact)


def least_time(problem: Problem) -> Frontier:
    """The one strategy of least time; which, of several equally fast, its memory does not say."""
    return least_time_among(problem, [np.arange(node.configurations) for node in problem.nodes])


def least_time_among(
    problem: Problem, kept: Sequence[Int64Array], most_cells: int = _MOST_CELLS
) -> Frontier:
    """`least_time` with some configurations of every node, by the numbers of ``problem``.

    Eliminations with one number for each choice, as OptCNN's, where their tables are small. Else
    frontier tracking, over a problem whose memories are all 0: every set of points
    that it keeps is then a single one. It tells slots from configurations, and leaves out
    configurations that bounds prove to be slower.
    """
    exact = True
    numbers = least_sum([own.size for own in kept], time_terms(problem, kept), most_cells)
    if numbers is None:
        found = frontier_tracking(restricted(_without_memory(problem), kept))
        numbers, exact = found.strategies[0].tolist(), found.exact
    strategy = [int(own[number]) for own, number in zip(kept, numbers, strict=True)]
    return single_strategy(problem, strategy, exact=exact)


def _without_memory(problem: Problem) -> Problem:
    nodes = tuple(Node(node.name, np.zeros_like(node.time), node.time) for node in problem.nodes)
    known: dict[tuple[int, int, int], Edge] = {}
    edges = []
    for edge in problem.edges:
        key = id(edge.time), id(edge.source_slots), id(edge.target_slots)
        if key not in known:
            known[key] = Edge(
                edge.source,
                edge.target,
                edge.source_slots,
                edge.target_slots,
                np.zeros_like(edge.time),
                edge.time,
            )
        edges.append(known[key].between(edge.source, edge.target))
    return Problem(nodes, tuple(edges))
