"""Flat arrays that say which edges end at which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int64Array, offsets_of

__all__ = ["Incidence", "Side"]


class Side(NamedTuple):
    """One end of every edge.

    Attributes:
        first, edges: int64[nodes + 1] and int64[edges]: the edges that end at each node.
        node: int64[edges], the node at this end.
        slots: int64[edges], where the slots of the node's configurations begin among all slots.
        messages: int64[edges], where the edge's messages to this end begin.
        sizes: int64[edges], the number of slots.
    """

    first: Int64Array
    edges: Int64Array
    node: Int64Array
    slots: Int64Array
    messages: Int64Array
    sizes: Int64Array


class Incidence(NamedTuple):
    """The structure of a graph in flat arrays.

    Attributes:
        start: int64[nodes + 1], where each node's configurations begin.
        slots: int64[any], the slots of configurations at all ends of edges.
        source, target: both ends of all edges.
    """

    start: Int64Array
    slots: Int64Array
    source: Side
    target: Side

    @classmethod
    def of(
        cls,
        start: Int64Array,
        slots: Sequence[Int64Array],
        nodes: Sequence[Sequence[int]],
        places: Sequence[Sequence[int] | Int64Array],
        sizes: Int64Array,
    ) -> Incidence:
        """Make the flat arrays of a graph.

        Args:
            start: see the attributes.
            slots: arrays that are joined to one.
            nodes: the sources and the targets of all edges.
            places: where the slots of the sources' and the targets' configurations begin.
            sizes: int64[2, edges], the number of slots. Messages have the same order.
        """
        messages = offsets_of(sizes.ravel())[:-1].reshape(sizes.shape)
        sides = []
        for ends, *rest in zip(nodes, places, messages, sizes, strict=True):
            node = np.array(ends, dtype=np.int64)
            first = offsets_of(np.bincount(node, minlength=start.size - 1))
            edges = np.argsort(node, kind="stable")
            sides.append(Side(first, edges, node, *(np.array(own, np.int64) for own in rest)))
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *slots])
        return cls(start, flat, *sides)

    def without(self, some: Int64Array) -> tuple[Int64Array, Int64Array, Incidence]:
        """Return the nodes and edges that remain without some edges, and the ends of the remaining
        edges.

        Nodes are those with a remaining edge. Both arrays ascend; in the ends, nodes have no other
        edges.
        """
        edges = np.delete(np.arange(self.source.node.size), some)
        sides = []
        for side in (self.source, self.target):
            node = side.node[edges]
            first = offsets_of(np.bincount(node, minlength=side.first.size - 1))
            own = edges[np.argsort(node, kind="stable")]
            sides.append(side._replace(first=first, edges=own))
        nodes = np.unique(np.concatenate([side.node[edges] for side in sides]))
        return nodes, edges, self._replace(source=sides[0], target=sides[1])
