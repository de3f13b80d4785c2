"""Makes a problem smaller without changing its frontier.

Let configurations j and k of a node differ by d in the node's own cost, and let an edge cost at
most D more with k than with j, for any slot at its other end. If d plus the sum of D over the edges
is at most 0 in memory and in time, a strategy with j is never better than the same strategy with k.
So j can be excluded, and every point of the frontier still has a strategy. Configurations with
equal slots are the case D = 0. For one objective this is Goldstein's criterion of dead-end
elimination. An excluded configuration points to the one that stays, so that equal configurations do
not exclude each other.

The code shares nothing with the search, which excludes configurations by bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import Problem

__all__ = ["Joined", "Reduced", "reduced", "restricted"]


# Largest number of cells of a table of differences in memory.
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """An edge between the remaining configurations of two nodes.

    Attributes:
        source, target: the nodes' numbers.
        source_slots, target_slots: int64[remaining configurations], slots, numbered from 0.
        memory, time: int64[source slots, target slots].
    """

    source: int
    target: int
    source_slots: Int64Array
    target_slots: Int64Array
    memory: Int64Array
    time: Int64Array

    def at(self, node: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Slots, memory and time with the slots of ``node``, one of the two ends, first."""
        if node == self.source:
            return self.source_slots, self.memory, self.time
        return self.target_slots, self.memory.T, self.time.T


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The rest of a problem; its strategies are strategies of the problem with the same costs.

    Attributes:
        kept: for each node the remaining configurations, by the problem's numbers.
        memory, time: for each node the costs of these configurations.
        edges: edges between nodes with several configurations; other edges are part of ``memory``
            and ``time``.
    """

    kept: tuple[Int64Array, ...]
    memory: tuple[Int64Array, ...]
    time: tuple[Int64Array, ...]
    edges: tuple[Joined, ...]

    @property
    def configurations(self) -> int:
        """The number of remaining configurations of all nodes."""
        return sum(own.size for own in self.kept)

    @property
    def variables(self) -> int:
        """The number of configurations and of edges' cells."""
        return self.configurations + sum(edge.time.size for edge in self.edges)

    def strategy(self, choices: Sequence[int]) -> list[int]:
        """The problem's configuration numbers of a choice from the remaining configurations."""
        return [int(own[choice]) for own, choice in zip(self.kept, choices, strict=True)]


def reduced(problem: Problem) -> Reduced:
    """Exclude configurations that are never better than another one, until all are excluded."""
    return _smallest(
        [np.arange(node.configurations) for node in problem.nodes],
        [node.memory for node in problem.nodes],
        [node.time for node in problem.nodes],
        [
            Joined(e.source, e.target, e.source_slots, e.target_slots, e.memory, e.time)
            for e in problem.edges
        ],
    )


def restricted(left: Reduced, stays: Sequence[Int64Array]) -> Reduced | None:
    """The rest without some configurations, and without those that are then never better than
    another.

    Args:
        left: the rest so far.
        stays: for each node the configurations that stay, as indices into ``left.kept``.

    Returns:
        The rest; None if a node has no configuration left.
    """
    if not all(own.size for own in stays):
        return None
    cut = dict(enumerate(stays))
    return _smallest(
        [own[some] for own, some in zip(left.kept, stays, strict=True)],
        [own[some] for own, some in zip(left.memory, stays, strict=True)],
        [own[some] for own, some in zip(left.time, stays, strict=True)],
        [_restricted(edge, cut) for edge in left.edges],
    )


def _smallest(
    kept: list[Int64Array],
    memory: list[Int64Array],
    time: list[Int64Array],
    edges: list[Joined],
) -> Reduced:
    changed = set(range(len(kept)))
    while changed:
        edges = _folded(edges, memory, time)
        around: list[list[Joined]] = [[] for _ in kept]
        for edge in edges:
            around[edge.source].append(edge)
            around[edge.target].append(edge)
        cut: dict[int, Int64Array] = {}
        for node in sorted(changed):
            # Neighbours may both be cut at once: each argument holds for any choice of the other
            # node.
            stays = _undominated(memory[node], time[node], [edge.at(node) for edge in around[node]])
            if stays.size < kept[node].size:
                cut[node] = stays
                kept[node] = kept[node][stays]
                memory[node], time[node] = memory[node][stays], time[node][stays]
        edges = [_restricted(edge, cut) for edge in edges]
        changed = {edge.source for edge in edges if edge.target in cut}
        changed |= {edge.target for edge in edges if edge.source in cut} | set(cut)
    return Reduced(tuple(kept), tuple(memory), tuple(time), tuple(_folded(edges, memory, time)))


def _undominated(
    memory: Int64Array, time: Int64Array, edges: Sequence[tuple[Int64Array, Int64Array, Int64Array]]
) -> Int64Array:
    """The configurations of a node that stay."""
    if memory.size == 1:
        return np.zeros(1, dtype=np.int64)
    more_memory = np.subtract.outer(memory, memory)  # row minus column
    more_time = np.subtract.outer(time, time)
    for slots, edge_memory, edge_time in edges:
        cell = np.ix_(slots, slots)
        more_time += _most_more(edge_time)[cell]
        if edge_memory.any():
            more_memory += _most_more(edge_memory)[cell]
    never_worse = (more_memory <= 0) & (more_time <= 0)
    earlier = np.tri(memory.size, k=-1, dtype=bool).T  # rows before columns
    goes = (never_worse & (earlier | ~never_worse.T)).any(axis=0)
    return np.flatnonzero(~goes)


def _most_more(costs: Int64Array) -> Int64Array:
    """int64[S, S]: the most that the row's slot costs more than the column's."""
    found = np.empty((len(costs), len(costs)), dtype=np.int64)
    step = max(_BLOCK // costs.size, 1)
    for first in range(0, len(costs), step):
        block = costs[first : first + step, None, :] - costs[None, :, :]
        found[first : first + step] = block.max(axis=2)
    return found


def _restricted(edge: Joined, cut: dict[int, Int64Array]) -> Joined:
    """The edge between the remaining configurations, without slots that have no configuration or
    the same costs as another slot."""
    if edge.source not in cut and edge.target not in cut:
        return edge
    sources, source_slots = _used(edge.source_slots, cut.get(edge.source))
    targets, target_slots = _used(edge.target_slots, cut.get(edge.target))
    cells = np.ix_(sources, targets)
    memory, time = edge.memory[cells], edge.time[cells]
    for axis in (0, 1):
        both = np.concatenate([np.moveaxis(memory, axis, 0), np.moveaxis(time, axis, 0)], axis=1)
        _, first, same = np.unique(both, axis=0, return_index=True, return_inverse=True)
        memory, time = memory.take(first, axis), time.take(first, axis)
        if axis == 0:
            source_slots = same.ravel()[source_slots]
        else:
            target_slots = same.ravel()[target_slots]
    return Joined(edge.source, edge.target, source_slots, target_slots, memory, time)


def _used(slots: Int64Array, stays: Int64Array | None) -> tuple[Int64Array, Int64Array]:
    """The used slots, and their new numbers for each configuration."""
    used, renumbered = np.unique(slots if stays is None else slots[stays], return_inverse=True)
    return used, renumbered.ravel()


def _folded(
    edges: Sequence[Joined], memory: list[Int64Array], time: list[Int64Array]
) -> list[Joined]:
    """The edges between nodes with several configurations; the costs of other edges are added to
    their nodes."""
    left = []
    for edge in edges:
        if memory[edge.source].size > 1 and memory[edge.target].size > 1:
            left.append(edge)
            continue
        node = edge.target if memory[edge.source].size == 1 else edge.source
        other = edge.source if node == edge.target else edge.target
        slots, edge_memory, edge_time = edge.at(node)
        column = edge.at(other)[0][0]
        memory[node] = memory[node] + edge_memory[slots, column]
        time[node] = time[node] + edge_time[slots, column]
    return left
