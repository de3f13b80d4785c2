"""The fastest strategy of a problem, whatever memory it takes: what solvers of one objective do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.search.bounds import ROUNDING, WeightedBounds
from tensoropt.search.frontier import Frontier
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.pruning import best_of, restricted
from tensoropt.search.strategies.least_sum import least_sum, time_terms

__all__ = ["least_time", "least_time_among", "single_strategy"]

Int64Array = npt.NDArray[np.int64]

# Of a table of the elimination; where it would be larger, frontier tracking takes over.
_MOST_CELLS = 1 << 24
# Where tables stay smaller by this factor, nothing is left out first.
_FEWER = 64
_SWEEPS = 24
_MOST_PROMISING = 4


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

    Eliminations with one number for each choice, as OptCNN's. Where their tables would be
    large, configurations are left out first that bounds prove to be slower than a known strategy;
    where they still would be, frontier tracking takes over, with memories that are all 0: every
    set of points that it keeps is then a single one.
    """
    exact = True
    numbers = _least(problem, kept, most_cells // _FEWER)
    if numbers is None:
        kept = _not_slower(problem, kept, most_cells)
        numbers = _least(problem, kept, most_cells)
    if numbers is None:
        found = frontier_tracking(restricted(_without_memory(problem), kept))
        numbers, exact = found.strategies[0].tolist(), found.exact
    strategy = [int(own[number]) for own, number in zip(kept, numbers, strict=True)]
    return single_strategy(problem, strategy, exact=exact)


def _least(problem: Problem, kept: Sequence[Int64Array], most_cells: int) -> list[int] | None:
    return least_sum([own.size for own in kept], time_terms(problem, kept), most_cells)


def _not_slower(
    problem: Problem, kept: Sequence[Int64Array], most_cells: int
) -> Sequence[Int64Array]:
    """What is left of ``kept`` when a strategy is known, made of the most promising ones."""
    parts: tuple[Node | Edge, ...] = (*problem.nodes, *problem.edges)
    if any(int(times.min()) < 0 for times in {id(part.time): part.time for part in parts}.values()):
        return kept  # bounds are for costs that are not negative
    part = restricted(_without_memory(problem), kept)
    table = WeightedBounds(part)
    bounds = table.bounds(1.0, 0.0, _SWEEPS)
    numbers: list[int] | None = None
    for count in range(_MOST_PROMISING, 0, -1):
        few = best_of([bounds], table.start, count)
        numbers = _least(part, few, most_cells)
        if numbers is not None:
            break
    if numbers is None:
        return kept
    _, known = part.cost([int(own[number]) for own, number in zip(few, numbers, strict=True)])
    alive = np.split(bounds.of_configuration <= known * (1 + ROUNDING), table.start[1:-1])
    return [own[marks] for own, marks in zip(kept, alive, strict=True)]


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
