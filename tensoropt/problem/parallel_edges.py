"""Edges that join the same slots of two nodes, as one: as in an unrolled layer."""

from __future__ import annotations

import numpy as np

from tensoropt.problem.model import Edge, Problem

__all__ = ["merged"]


def merged(problem: Problem) -> Problem:
    """The same problem with one edge for all that join two nodes at the same slots."""
    together: dict[tuple[int, int, int, int, tuple[int, ...]], list[Edge]] = {}
    numbers: dict[bytes, int] = {}
    number_of: dict[int, int] = {}
    for edge in problem.edges:
        slots = []
        for array in (edge.source_slots, edge.target_slots):
            if id(array) not in number_of:
                number_of[id(array)] = numbers.setdefault(array.tobytes(), len(numbers))
            slots.append(number_of[id(array)])
        key = edge.source, edge.target, slots[0], slots[1], edge.time.shape
        together.setdefault(key, []).append(edge)
    if len(together) == len(problem.edges):
        return problem
    sums: dict[tuple[tuple[int, int], ...], Edge] = {}
    edges = []
    for (source, target, near, far, _), alike in together.items():
        tables = (near, far), *((id(edge.time), id(edge.memory)) for edge in alike)
        if tables not in sums:
            first = alike[0]
            sums[tables] = Edge(
                source,
                target,
                first.source_slots,
                first.target_slots,
                np.sum([edge.memory for edge in alike], axis=0),
                np.sum([edge.time for edge in alike], axis=0),
            )
        edges.append(sums[tables].between(source, target))
    return Problem(problem.nodes, tuple(edges))
