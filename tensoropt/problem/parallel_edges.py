"""Edges that join two nodes at the same slots, as one: unrolled layers have many."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from tensoropt.problem.model import CostTable, Edge, EdgeKind

__all__ = ["merged_edges"]


def merged_edges(counts: Mapping[tuple[int, int, EdgeKind], int]) -> tuple[Edge, ...]:
    """An edge for all that join the same slots of two nodes, with all their costs.

    Args:
        counts: how many edges of each kind join a source and a target.
    """
    parallel: dict[Hashable, list[tuple[Edge, int]]] = {}
    for (source, target, kind), count in counts.items():
        key = source, target, kind.maps, kind.costs.time.shape
        parallel.setdefault(key, []).append((Edge(source, target, kind), count))
    sums: dict[Hashable, CostTable] = {}
    edges = []
    for alike in parallel.values():
        edge, count = alike[0]
        if count > 1 or len(alike) > 1:
            tables = tuple((each.costs, count) for each, count in alike)
            if tables not in sums:
                memory = np.sum([count * table.memory for table, count in tables], axis=0)
                time = np.sum([count * table.time for table, count in tables], axis=0)
                sums[tables] = CostTable(memory, time)
            edge = Edge(edge.source, edge.target, EdgeKind(*edge.kind.maps, sums[tables]))
        edges.append(edge)
    return tuple(edges)
