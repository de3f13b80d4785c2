"""Edges that join two nodes at the same slots, as one: unrolled layers have many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import numpy as np

from tensoropt.problem.model import CostTable, Edge, EdgeKind, Problem, SlotMap

__all__ = ["merge_parallel_edges", "merged_edges"]


def merge_parallel_edges(problem: Problem) -> Problem:
    """The same problem with one edge for all that join two nodes at the same slots."""
    equal: dict[bytes, SlotMap] = {}
    maps = dict.fromkeys(own for edge in problem.edges for own in edge.kind.maps)
    known = {own: equal.setdefault(own.slots.tobytes(), own) for own in maps}
    counts: Counter[tuple[int, int, EdgeKind]] = Counter()
    for edge in problem.edges:
        source_map, target_map = (known[own] for own in edge.kind.maps)
        counts[edge.source, edge.target, EdgeKind(source_map, target_map, edge.costs)] += 1
    edges = merged_edges(counts)
    return problem if len(edges) == len(problem.edges) else Problem(problem.nodes, edges)


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
