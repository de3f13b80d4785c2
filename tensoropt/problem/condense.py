"""The problem without nodes that have nothing to choose any more."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import Edge, Node, Problem

__all__ = ["condense"]


def condense(problem: Problem) -> tuple[Problem, Int64Array]:
    """The problem without nodes of one configuration.

    What these and the edges between them cost is added to the first node that is left, and what
    their edges to another node cost, to that node. Where all have one, the first node is left.

    Returns:
        The smaller problem, whose strategies cost what they do in the whole one; and int64[its
        nodes], their numbers in the whole one.
    """
    left = [number for number, node in enumerate(problem.nodes) if node.configurations > 1] or [0]
    place = {number: position for position, number in enumerate(left)}
    memory = [problem.nodes[number].memory.copy() for number in left]
    time = [problem.nodes[number].time.copy() for number in left]
    for number, node in enumerate(problem.nodes):
        if number not in place:
            memory[0] += node.memory[0]
            time[0] += node.time[0]
    edges = []
    for edge in problem.edges:
        near, far = place.get(edge.source), place.get(edge.target)
        if near is not None and far is not None:
            edges.append(Edge(near, far, edge.kind))
            continue
        # Of an end that is gone there is one slot.
        rows = edge.source_slots if near is not None else edge.source_slots[0]
        columns = edge.target_slots if far is not None else edge.target_slots[0]
        into = near if near is not None else far if far is not None else 0
        memory[into] += edge.memory[rows, columns]
        time[into] += edge.time[rows, columns]
    nodes = [
        Node(problem.nodes[number].name, *costs)
        for number, *costs in zip(left, memory, time, strict=True)
    ]
    return Problem(tuple(nodes), tuple(edges)), np.array(left, dtype=np.int64)
