"""Edges that join two nodes at the same slots, as one: unrolled layers have many."""

from __future__ import annotations

import numpy as np

from tensoropt.problem.model import CostTable, Edge, EdgeKind, Problem, SlotMap

__all__ = ["merge_parallel_edges"]


def merge_parallel_edges(problem: Problem) -> Problem:
    """The same problem with one edge for all that join two nodes at the same slots."""
    parallel: dict[tuple[int, int, SlotMap, SlotMap, tuple[int, ...]], list[EdgeKind]] = {}
    known: dict[SlotMap, SlotMap] = {}
    equal: dict[bytes, SlotMap] = {}
    for edge in problem.edges:
        for slot_map in (edge.kind.source_map, edge.kind.target_map):
            if slot_map not in known:
                known[slot_map] = equal.setdefault(slot_map.slots.tobytes(), slot_map)
        maps = known[edge.kind.source_map], known[edge.kind.target_map]
        key = edge.source, edge.target, *maps, edge.time.shape
        parallel.setdefault(key, []).append(edge.kind)
    if len(parallel) == len(problem.edges):
        return problem
    kinds: dict[tuple[SlotMap, SlotMap, tuple[CostTable, ...]], EdgeKind] = {}
    edges = []
    for (source, target, source_map, target_map, _), alike in parallel.items():
        tables = [kind.costs for kind in alike]
        parts = source_map, target_map, tuple(tables)
        if parts not in kinds:
            memory = np.sum([table.memory for table in tables], axis=0)
            time = np.sum([table.time for table in tables], axis=0)
            kinds[parts] = EdgeKind(source_map, target_map, CostTable(memory, time))
        edges.append(Edge(source, target, kinds[parts]))
    return Problem(problem.nodes, tuple(edges))
