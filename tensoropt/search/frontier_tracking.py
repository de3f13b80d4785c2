"""FT-LDP, Algorithm 2 of the paper: the cost frontier of a computation graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tensoropt.errors import OptionError
from tensoropt.search.bounded import bounded_frontier, can_bound
from tensoropt.search.elimination import Heuristic, SearchGraph, fold
from tensoropt.search.frontier import Frontier
from tensoropt.search.linear_dp import linear_dp
from tensoropt.search.linearise import linearise
from tensoropt.search.potentials import Known, NothingBetterError
from tensoropt.search.problem import Problem
from tensoropt.search.watch import best_known, solving

__all__ = ["eliminated", "frontier_tracking"]

# Where known strategies keep tables small, branch elimination may make so many times more states.
_MORE_STATES = 40


def frontier_tracking(
    problem: Problem,
    *,
    heuristic: str = "least_memory",
    weight: float = 0.5,
    max_states: int = 512,
    epsilon: float = 0.0,
    bounds: bool = True,
) -> Frontier:
    """Find the cost frontier by eliminations and linear dynamic programming (FT-LDP).

    First, configurations are left out that are proven to be on no frontier (`bounded_frontier`),
    where the problem is large. Then the graph is simplified to a chain (``linearise``), the chain
    is solved (``linear_dp``), and the points found are unrolled to strategies. Components that are
    not connected are solved one by one and multiplied. The result is the same on every machine,
    and exact unless a heuristic elimination was needed, or too much was left for an exact search;
    then it says within what it is exact.

    Args:
        problem: nodes, edges and their costs.
        heuristic: how heuristic elimination decides: "least_memory" or "weighted".
        weight: of memory against time in "weighted", 0 to 1.
        max_states: branch elimination may not make a node of more states than this; where no
            exact elimination is left, a heuristic one follows. Larger is more often exact, and
            slower. Among configurations that bounds have left it is 40 times as many.
        epsilon: how far from exact the frontier may be: for every strategy it has a point of at
            most 1 + ``epsilon`` times its memory and its time. The search ends as soon as that is
            proven.
        bounds: False for the eliminations and the dynamic program alone.

    Returns:
        The frontier, with counts of the eliminations.

    Raises:
        OptionError: if an option is none of the above.
    """
    chooser = Heuristic(heuristic, weight)
    if max_states < 1:
        raise OptionError(f"max_states is at least 1. Got {max_states}.")
    if not epsilon >= 0:
        raise OptionError(f"epsilon is at least 0. Got {epsilon}.")
    if bounds and can_bound(problem):
        with solving():
            try:
                return bounded_frontier(
                    problem,
                    lambda part, known: eliminated(part, chooser, max_states, known),
                    epsilon,
                )
            except KeyboardInterrupt:
                found = best_known()
                if found is None:
                    raise
                return found
    return eliminated(problem, chooser, max_states)


def eliminated(
    problem: Problem, chooser: Heuristic, max_states: int, known: Known | None = None
) -> Frontier:
    """Eliminations until the graph is a chain, then dynamic programming.

    Raises:
        NothingBetterError: if strategies are known, and none is better.
    """
    graph = SearchGraph(problem, known)
    try:
        _solve(graph, chooser, max_states if known is None else _MORE_STATES * max_states)
    except NothingBetterError:
        raise NothingBetterError(proven=graph.counts["heuristic"] == 0) from None
    return Frontier(
        graph.constant.memory,
        graph.constant.time,
        graph.derivations.unroll(graph.constant.identity, len(problem.nodes)),
        graph.counts,
        exact=graph.counts["heuristic"] == 0,
    )


def _solve(graph: SearchGraph, chooser: Heuristic, max_states: int) -> None:
    for node in [node for node, table in graph.nodes.items() if table.rows == 1]:
        fold(graph, node)
    while graph.nodes:
        chain = linearise(graph, chooser, max_states)
        edges = [graph.edge(*ends) for ends in pairwise(chain)]
        inside = [graph.inside[node] for node in chain]
        found = linear_dp(
            [graph.nodes[node] for node in chain], edges, graph.derivations, graph.hopeful, inside
        )
        graph.settle(found, np.sum([*inside, *(edge.inside for edge in edges)], axis=0))
        for node in chain:
            graph.remove(node)
