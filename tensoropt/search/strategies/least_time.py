"""The fastest strategy of a problem, whatever memory it takes: what solvers of one objective do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.search.frontier import Frontier
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.pruning import restricted

__all__ = ["least_time", "least_time_among", "single_strategy"]

Int64Array = npt.NDArray[np.int64]


def single_strategy(problem: Problem, strategy: npt.ArrayLike, *, exact: bool = True) -> Frontier:
    """The frontier of a solver that finds one strategy, with its costs by equation 3."""
    row = np.asarray(strategy, dtype=np.int32)
    memory, time = problem.cost([int(number) for number in row])
    return Frontier(
        np.array([memory]), np.array([time]), row[None], exact=exact, within=0.0 if exact else None
    )


def least_time(problem: Problem) -> Frontier:
    """The one strategy of least time (of least memory among those found equally fast).

    Frontier tracking over a problem whose memories are all 0: every set of points that it keeps
    is then a single one, and its eliminations are those of OptCNN's dynamic program.
    """
    found = frontier_tracking(_without_memory(problem))
    return single_strategy(problem, found.strategies[-1], exact=found.exact)


def least_time_among(problem: Problem, kept: Sequence[Int64Array]) -> Frontier:
    """`least_time` with some configurations of every node, by the numbers of ``problem``."""
    found = least_time(restricted(problem, kept))
    strategy = [own[number] for own, number in zip(kept, found.strategies[0], strict=True)]
    return single_strategy(problem, strategy, exact=found.exact)


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
