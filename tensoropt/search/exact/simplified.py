"""An exact frontier where eliminations come first, and bounds after them.

In a problem of few cells most nodes can be eliminated at once: what comes of them has hardly more
points than cells. Bounds of what remains are closer than those of the whole problem, and of less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.parallel_edges import merge_parallel_edges
from tensoropt.search.bounds.pruning_context import BoundSet, Staircase
from tensoropt.search.exact.bounded import weights_of
from tensoropt.search.exact.ft_ldp import or_too_large, solve_graph
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import keep

__all__ = ["simplified_frontier"]


# More cells of edges take longer to eliminate than to bound.
_MOST_CELLS = 2_000_000
# What is left is searched whole if it has no more configurations than this; or, of more nodes than
# these, in proportion.
_MOST_LEFT, _MANY_NODES = 8_000, 250
# Weights, and how often costs are moved: at first, and when strategies are known.
_WEIGHTS = 6
_FIRST_SWEEPS, _SWEEPS = 2, 24
# Slopes of a hull that are all among the weights if there are no more, as of many like layers.
_FEW_SLOPES = 12
# Of every node and weight.
_BEST = 1
# Where known strategies keep tables small, branch elimination may make so many times more states.
_MORE_STATES = 40


def simplified_frontier(problem: Problem, max_states: int, epsilon: float = 0.0) -> Frontier | None:
    """The frontier of a problem with few cells.

    The graph is simplified (`simplify`). Bounds for several weights then say which states are
    promising: with these alone it is searched, as by the paper's algorithm 2. What by new bounds
    cannot better the strategies found is left out, and the rest is searched: the two together are
    the exact frontier.

    Args:
        problem: with costs that are not negative.
        max_states: see `frontier_tracking`.
        epsilon: only what is better by more than a factor of 1 + epsilon counts.

    Returns:
        None where that is not how to search it: it has too many cells, heuristic eliminations are
        needed, or tables become too large.
    """
    problem = merge_parallel_edges(problem)
    if sum(edge.time.size for edge in problem.edges) > _MOST_CELLS:
        return None
    outcome = or_too_large(lambda: _searched(problem, max_states, epsilon), None)
    return None if outcome.is_too_large else outcome.found


def _searched(problem: Problem, max_states: int, epsilon: float) -> Outcome:
    graph = SearchGraph(problem)
    simplify(graph)
    left = sum(graph.states(node) for node in graph.nodes)
    if left > _MOST_LEFT * max(1.0, len(graph.nodes) / _MANY_NODES):
        return Outcome.too_large()
    weights = _arrays(weights_of(problem, None, _WEIGHTS))
    bounds = graph.copy().begin(weights, Staircase.unlimited(), _FIRST_SWEEPS)
    promising = graph.copy()
    promising.restrict({node: _lowest(own) for node, own in bounds.items()})
    found = solve_graph(promising, None, 0.0, max_states).found
    known = replace(found, exact=False, within=None)
    keep(known)
    rest = graph.copy()
    staircase = Staircase.below(known.memory, known.time, epsilon)
    better = BoundSet(*weights, np.zeros_like(weights[0]), staircase)
    # Bounds for other weights are of less, once the first ones have left out what they can.
    rest.restrict({node: np.flatnonzero(better.possible(own)) for node, own in bounds.items()})
    if not rest.is_pruned_out:
        rest.begin(_arrays(_closer_weights(problem, known)), staircase, _SWEEPS)
    outcome = solve_graph(rest, known, epsilon, _MORE_STATES * max_states)
    return Outcome.too_large() if rest.counts["heuristic"] else outcome


def _closer_weights(problem: Problem, known: Frontier) -> list[tuple[float, float]]:
    """Weights of the known frontier's hull: all its slopes, or some of many."""
    weights = weights_of(problem, known, _FEW_SLOPES + 1)
    all_slopes = len(known) > 2 and len(weights) - 2 <= _FEW_SLOPES
    return weights if all_slopes else weights_of(problem, known, _WEIGHTS)


def _lowest(bounds: Float64Array) -> Int64Array:
    """The states that are best for some weight."""
    found: Int64Array = np.unique(np.argsort(bounds, axis=0, kind="stable")[:_BEST])
    return found


def _arrays(weights: list[tuple[float, float]]) -> tuple[Float64Array, Float64Array]:
    per_nanosecond, per_byte = np.array(weights).T
    return np.ascontiguousarray(per_nanosecond), np.ascontiguousarray(per_byte)
