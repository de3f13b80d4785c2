"""Reduce a problem to some of each node's configurations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap

__all__ = ["restrict", "whole_strategies"]


def restrict(problem: Problem, kept: Sequence[Int64Array]) -> Problem:
    """Return the problem with fewer configurations, without the slots that none of them has.

    Args:
        problem: the problem.
        kept: for each node the numbers of the configurations that stay, in their new order.
    """
    nodes = tuple(
        Node(node.name, node.memory[numbers], node.time[numbers])
        for node, numbers in zip(problem.nodes, kept, strict=True)
    )
    keys = [numbers.tobytes() for numbers in kept]
    ends: dict[tuple[SlotMap, bytes], tuple[Int64Array, SlotMap]] = {}
    kinds: dict[tuple[EdgeKind, bytes, bytes], EdgeKind] = {}
    zeros: dict[tuple[int, ...], Int64Array] = {}

    def end(slot_map: SlotMap, node: int) -> tuple[Int64Array, SlotMap]:
        """Return the remaining slots of a node's configurations, ascending, and the new slot
        map."""
        key = slot_map, keys[node]
        if key not in ends:
            remaining, renumbered = np.unique(slot_map.slots[kept[node]], return_inverse=True)
            ends[key] = remaining, SlotMap(renumbered.ravel())
        return ends[key]

    def restricted(edge: Edge) -> EdgeKind:
        key = edge.kind, keys[edge.source], keys[edge.target]
        if key not in kinds:
            rows, source_map = end(edge.kind.source_map, edge.source)
            columns, target_map = end(edge.kind.target_map, edge.target)
            time = edge.time.take(rows, axis=0).take(columns, axis=1)
            if problem.edges_take_memory:
                memory = edge.memory.take(rows, axis=0).take(columns, axis=1)
            else:
                memory = zeros.setdefault(time.shape, np.zeros_like(time))
            kinds[key] = EdgeKind(source_map, target_map, CostTable(memory, time))
        return kinds[key]

    edges = [Edge(edge.source, edge.target, restricted(edge)) for edge in problem.edges]
    return Problem(nodes, tuple(edges))


def whole_strategies(kept: Sequence[Int64Array], strategies: Int32Array) -> Int32Array:
    """Return the strategies of ``restrict(problem, kept)`` with the numbers of ``problem``.

    Both are int32[any, nodes].
    """
    original = np.empty_like(strategies)
    for node, numbers in enumerate(kept):
        original[:, node] = numbers[strategies[:, node]]
    return original
