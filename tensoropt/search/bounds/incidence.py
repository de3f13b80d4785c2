"""Which edges end at which nodes, in flat arrays, and the 2-core of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int64Array, offsets_of

__all__ = ["Core", "Side", "side_of"]


class Side(NamedTuple):
    """One end of every edge.

    Attributes:
        first, edges: int64[nodes + 1] and int64[edges]: the edges of each node that end there.
        node: int64[edges], the node at this end.
        slots: int64[edges], where the slots of its configurations begin among all slots.
        messages: int64[edges], where the edge's messages to this end begin.
        sizes: int64[edges], how many slots there are.
    """

    first: Int64Array
    edges: Int64Array
    node: Int64Array
    slots: Int64Array
    messages: Int64Array
    sizes: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The 2-core of a graph: what is left without its pendant trees.

    Attributes:
        nodes, edges: int64[any], those that are left, ascending.
        source, target: the ends, at which nodes have no other edges.
    """

    nodes: Int64Array
    edges: Int64Array
    source: Side
    target: Side

    @classmethod
    def of(cls, source: Side, target: Side, pendant: Int64Array) -> Core:
        edges = np.delete(np.arange(source.node.size), pendant)
        sides = []
        for side in (source, target):
            node = side.node[edges]
            first = offsets_of(np.bincount(node, minlength=side.first.size - 1))
            own = edges[np.argsort(node, kind="stable")]
            sides.append(side._replace(first=first, edges=own))
        nodes = np.unique(np.concatenate([source.node[edges], target.node[edges]]))
        return cls(nodes, edges, *sides)


def side_of(
    ends: Sequence[int], nodes: int, slots: Sequence[int], messages: Int64Array, sizes: Int64Array
) -> Side:
    """The side whose edges end at some nodes; for the other arguments see `Side`."""
    node = np.array(ends, dtype=np.int64)
    first = offsets_of(np.bincount(node, minlength=nodes))
    edges = np.argsort(node, kind="stable")
    return Side(first, edges, node, np.array(slots, dtype=np.int64), messages, sizes)
