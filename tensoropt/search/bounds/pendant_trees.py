"""Pendant trees and spanning trees of a graph: along trees bounds are exact.

After message passing (`message_passing`) no cost is negative, so a bound may leave out edges. On a
spanning tree the least cost of every configuration is exact after one pass to the roots and one
back. The tree has the edges with the largest residual costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.search.bounds.passes import ENDLESS, Tables, cells_of, pass_cost
from tensoropt.search.flat.incidence import Incidence

__all__ = ["Walk", "pass_along", "pendant_edges", "residual_costs", "spanning_tree"]


# Every seventh row and fifth column of an edge is sampled for its residual cost.
_ROWS, _COLUMNS = 7, 5


class Walk(NamedTuple):
    """The edges of a forest from each node to its parent; nodes come before their parents.

    Attributes:
        edges: int64[any], numbers of the edges.
        is_ahead: bool[any], whether the parent is the edge's target.
    """

    edges: Int64Array
    is_ahead: BoolArray

    def back(self) -> Walk:
        """The walk in reverse, from parents to nodes."""
        return Walk(self.edges[::-1].copy(), ~self.is_ahead[::-1])

    def then(self, other: Walk) -> Walk:
        """This walk followed by another."""
        return Walk(
            np.concatenate([self.edges, other.edges]),
            np.concatenate([self.is_ahead, other.is_ahead]),
        )


def pendant_edges(nodes: int, source: Sequence[int], target: Sequence[int]) -> Walk:
    """Return the edges of all trees that hang on the graph by one node, leaves first.

    In a tree these are all edges.
    """
    beside: list[set[int]] = [set() for _ in range(nodes)]  # the edges of each node
    for edge, ends in enumerate(zip(source, target, strict=True)):
        for node in ends:
            beside[node].add(edge)
    edges, is_ahead = [], []
    leaves = [node for node in range(nodes) if len(beside[node]) == 1][::-1]
    while leaves:
        leaf = leaves.pop()
        if not beside[leaf]:
            continue  # the last of a tree
        (edge,) = beside[leaf]
        parent = target[edge] if source[edge] == leaf else source[edge]
        beside[leaf].remove(edge)
        beside[parent].remove(edge)
        edges.append(edge)
        is_ahead.append(parent == target[edge])
        if len(beside[parent]) == 1:
            leaves.append(parent)
    return Walk(np.array(edges, dtype=np.int64), np.array(is_ahead, dtype=np.bool_))


def spanning_tree(
    nodes: int, source: Int64Array, target: Int64Array, edges: Int64Array, left: Float64Array
) -> Walk:
    """Return the spanning tree of largest residual costs, of each component.

    Args:
        nodes: the number of nodes.
        source, target: int64[all edges], the nodes that edges join.
        edges: the edges that the tree may have.
        left: float64[all edges], see `residual_costs`.
    """
    order = edges[np.argsort(-left[edges], kind="stable")]
    _, first = np.unique(source[order] * nodes + target[order], return_index=True)
    order = order[np.sort(first)]  # of edges that join the same nodes, the best
    # Every node may hang on an extra root, for components.
    near = np.concatenate([source[order], np.arange(nodes)])
    far = np.concatenate([target[order], np.full(nodes, nodes)])
    rank = np.arange(1, near.size + 1, dtype=np.float64)
    shape = nodes + 1, nodes + 1
    tree = minimum_spanning_tree(coo_array((rank, (near, far)), shape=shape).tocsr())
    visited, parent = breadth_first_order(tree, nodes, directed=False)
    number = {(int(source[edge]), int(target[edge])): int(edge) for edge in order}
    walk = []
    for node in visited[:0:-1].tolist():
        above = int(parent[node])
        if above < nodes:
            is_ahead = (node, above) in number
            walk.append((number[(node, above) if is_ahead else (above, node)], is_ahead))
    return Walk(
        np.array([edge for edge, _ in walk], dtype=np.int64),
        np.array([is_ahead for _, is_ahead in walk], dtype=np.bool_),
    )


@numba.njit(cache=True, nogil=True)
def residual_costs(ends: Incidence, tables: Tables, messages: Float64Array) -> Float64Array:
    """float64[edges], the mean cost of each edge after the messages that it has passed."""
    source, target = ends.source, ends.target
    means = np.zeros(source.node.size)
    for edge in range(means.size):
        rows, columns = source.sizes[edge], target.sizes[edge]
        near, far = messages[source.messages[edge] :], messages[target.messages[edge] :]
        cells, scale = cells_of(tables, 0, edge), tables.scale[0, edge]
        count = 0
        for row in range(0, rows, _ROWS):
            for column in range(0, columns, _COLUMNS):
                left = cells[row * columns + column] / scale - near[row] - far[column]
                if left < ENDLESS / 2:  # else no configuration has one of the slots
                    means[edge] += left
                    count += 1
        means[edge] /= max(count, 1)
    return means


@numba.njit(cache=True, nogil=True)
def pass_along(
    walk: Walk,
    ends: Incidence,
    tables: Tables,
    costs: Float64Array,
    left: Float64Array,
    messages: Float64Array,
) -> None:
    """Pass all cost of every node along a walk to its edge, and as much as possible to the next
    node.

    A walk to parents gathers all cost at the roots. On the way back nodes keep the cost that they
    pass on; then every node has the least cost of its tree with each of its configurations.

    Args:
        walk: the edges in order.
        ends, tables: of all edges.
        costs: float64[weights, configurations], all nodes' costs with the messages received.
        left: the array from which passed cost is subtracted: ``costs``, or one that is not read.
        messages: float64[weights, slots of all edges], from edges to nodes.
    """
    for place in range(walk.edges.size):
        edge, is_ahead = walk.edges[place], walk.is_ahead[place]
        node = ends.source.node[edge] if is_ahead else ends.target.node[edge]
        first, last = ends.start[node], ends.start[node + 1]
        # A copy, as in sweeps, so that the same compiled code serves.
        own, rest = costs[:, first:last].copy(), left[:, first:last]
        pass_cost(edge, is_ahead, 1.0, ends, tables, own, rest, costs, messages)
