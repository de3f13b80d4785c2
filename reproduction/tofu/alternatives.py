"""The partitions that Tofu compares with its own (section 7.3): two greedy heuristics, Tofu's
search with one dimension for each tensor, and a search without output reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Edge
from tensoropt.search.baselines.least_time import least_time, single_strategy
from tensoropt.search.baselines.nearest import leader_assignments, nearest_option
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["ALTERNATIVES", "all_row_greedy", "equal_chop", "icml18", "spartan"]


def all_row_greedy(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """A greedy strategy: every tensor is split along its first dimension, and every operator has
    its best split for these tensors."""
    del limits
    along_rows = [_first_dimension(problem, node) for node in range(len(problem.choices))]
    beside = _beside(problem)
    strategy = []
    for node, group in enumerate(problem.choices):
        if problem.graph[group.leader].is_variable:
            strategy.append(along_rows[node])
            continue
        options = _along_one(leader_assignments(problem, node))
        costs = problem.problem.nodes[node].time[options].copy()
        for edge in beside[node]:
            far = edge.target if edge.source == node else edge.source
            costs += _times(edge, node, options, np.array([along_rows[far]])).min(axis=1)
        strategy.append(int(options[costs.argmin()]))
    return single_strategy(problem.problem, strategy)


def spartan(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """A greedy strategy: the largest tensor is split first, along its best dimension, then the
    operators at it, then the second largest tensor, and so on (Huang et al., 2015, as Tofu
    describes it).

    The best choice takes the least time with all decided choices, if each undecided one were made
    for it.
    """
    del limits
    count = len(problem.choices)
    options = [_along_one(leader_assignments(problem, node)) for node in range(count)]
    beside = _beside(problem)
    decided: dict[int, int] = {}

    def decide(node: int) -> None:
        if node in decided:
            return
        costs = problem.problem.nodes[node].time[options[node]].copy()
        for edge in beside[node]:
            far = edge.target if edge.source == node else edge.source
            others = np.array([decided[far]]) if far in decided else options[far]
            costs += _times(edge, node, options[node], others).min(axis=1)
        decided[node] = int(options[node][costs.argmin()])

    sizes = [_largest(problem, node) for node in range(count)]
    for node in sorted(range(count), key=lambda each: (-sizes[each], each)):
        decide(node)
        for edge in beside[node]:
            decide(edge.target if edge.source == node else edge.source)
    return single_strategy(problem.problem, [decided[node] for node in range(count)])


def equal_chop(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The fastest strategy of those that split each operator along one index."""
    kept = [_along_one(leader_assignments(problem, node)) for node in range(len(problem.choices))]
    return least_time(problem.problem, kept, limits)


def icml18(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The fastest strategy that computes nothing twice and splits no sum, so that no output has
    to be reduced (Jia et al., ICML 2018, as Tofu describes it)."""
    kept = []
    for node, group in enumerate(problem.choices):
        assigned = leader_assignments(problem, node)
        indices = problem.derivations[group.leader].indices
        reduced = np.array([index.reducer is not None for index in indices] + [False])
        allowed = ~reduced[assigned].any(axis=1)
        kept.append(_most_split(assigned, np.flatnonzero(allowed)))
    return least_time(problem.problem, kept, limits)


ALTERNATIVES: Mapping[str, Callable[[GraphProblem], Frontier]] = MappingProxyType(
    {
        "AllRow-Greedy": all_row_greedy,
        "Spartan": spartan,
        "EqualChop": equal_chop,
        "ICML18": icml18,
    }
)
"""The alternatives by their names in Tofu's Figure 10."""


def _along_one(assigned: Int8Array) -> Int64Array:
    """The options that split at most one index, over as many devices as possible."""
    first = assigned.max(axis=1, initial=NO_INDEX)
    one = ((assigned == first[:, None]) | (assigned == NO_INDEX)).all(axis=1)
    return _most_split(assigned, np.flatnonzero(one))


def _most_split(assigned: Int8Array, options: Int64Array) -> Int64Array:
    """The options with splits along the most axes."""
    axes = (assigned[options] != NO_INDEX).sum(axis=1)
    found: Int64Array = options[axes == axes.max()]
    return found


def _first_dimension(problem: GraphProblem, node: int) -> int:
    """The option that splits the leader's output along its first dimension."""
    assigned = leader_assignments(problem, node)
    dims = problem.derivations[problem.choices[node].leader].outputs
    index = dims[0][0] if dims and dims[0] and dims[0][0] is not None else NO_INDEX
    return nearest_option(assigned, np.full(assigned.shape[1], index, dtype=np.int8))


def _largest(problem: GraphProblem, node: int) -> int:
    """Elements of the largest tensor of a node."""
    shapes = [
        shape
        for name in problem.choices[node].members
        for shape in problem.derivations[name].output_shapes
        if -1 not in shape
    ]
    return max((prod(shape) for shape in shapes), default=0)


def _beside(problem: GraphProblem) -> list[list[Edge]]:
    """The edges of every node."""
    found: list[list[Edge]] = [[] for _ in problem.choices]
    for edge in problem.problem.edges:
        found[edge.source].append(edge)
        found[edge.target].append(edge)
    return found


def _times(edge: Edge, node: int, options: Int64Array, others: Int64Array) -> Int64Array:
    """int64[options, others], the times of an edge between options of a node and those of the
    other node."""
    times, here, there = edge.time, edge.source_slots, edge.target_slots
    if edge.source != node:
        times, here, there = times.T, there, here
    found: Int64Array = times[np.ix_(here[options], there[others])]
    return found
