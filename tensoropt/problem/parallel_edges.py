"""Merge parallel edges: unrolled layers have many edges between the same slots of two nodes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from tensoropt.problem.model import CostTable, Edge, EdgeKind

__all__ = ["merged_edges"]


def merged_edges(counts: Mapping[tuple[int, int, EdgeKind], int]) -> tuple[Edge, ...]:
    """Return one edge for all edges between the same slots of two nodes, with their total cost.

    Args:
        counts: number of edges of each kind between a source and a target.
    """
    groups: dict[Hashable, list[tuple[Edge, int]]] = {}
    for (source, target, kind), count in counts.items():
        key = source, target, kind.maps, kind.costs.time.shape
        groups.setdefault(key, []).append((Edge(source, target, kind), count))
    sums: dict[Hashable, CostTable] = {}
    edges = []
    for edges_and_counts in groups.values():
        edge, count = edges_and_counts[0]
        if count > 1 or len(edges_and_counts) > 1:
            tables = tuple((edge.costs, count) for edge, count in edges_and_counts)
            if tables not in sums:
                memory = np.sum([count * table.memory for table, count in tables], axis=0)
                time = np.sum([count * table.time for table, count in tables], axis=0)
                sums[tables] = CostTable(memory, time)
            edge = Edge(edge.source, edge.target, EdgeKind(*edge.kind.maps, sums[tables]))
        edges.append(edge)
    return tuple(edges)
