"""Which edges end at which nodes, in flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int64Array, offsets_of

__all__ = ["Incidence", "Side"]


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


class Incidence(NamedTuple):
    """A graph in flat arrays.

    Attributes:
        start: int64[nodes + 1], where each node's configurations are.
        slots: int64[any], the slots of configurations at all ends of edges.
        source, target: the ends.
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
        """The flat arrays of a graph.

        Args:
            start: see above.
            slots: that follow one another.
            nodes: of all edges the sources, and the targets.
            places: where the slots of their configurations begin, likewise.
            sizes: int64[2, edges], how many slots there are. Messages lie in the same order.
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
        """What is left without some edges: int64[any] nodes that have any, and edges, both
        ascending; and the ends, at which nodes have no other edges."""
        edges = np.delete(np.arange(self.source.node.size), some)
        sides = []
        for side in (self.source, self.target):
            node = side.node[edges]
            first = offsets_of(np.bincount(node, minlength=side.first.size - 1))
            own = edges[np.argsort(node, kind="stable")]
            sides.append(side._replace(first=first, edges=own))
        nodes = np.unique(np.concatenate([side.node[edges] for side in sides]))
        return nodes, edges, self._replace(source=sides[0], target=sides[1])
