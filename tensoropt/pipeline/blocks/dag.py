"""Weighted directed acyclic graphs, which are partitioned into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numba
import numpy as np

from tensoropt.arrays import Int64Array, offsets_of
from tensoropt.errors import GraphError

__all__ = ["Dag", "quotient_order"]


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """Nodes in topological order, and the edges between them.

    Attributes:
        time: int64[nodes], nanoseconds.
        memory: int64[nodes], bytes; the memory of a group is the sum.
        source, target: int64[edges], source < target; sorted by source, then by target.
        bytes: int64[edges], the bytes that the source sends to the target. If a node has several
            edges into a group, the largest counts alone: the node sends its output once.
        outgoing: int64[nodes + 1], the number of the first edge of each source.
        incoming: int64[nodes + 1], where the edges of each target begin in ``incoming_edges``.
        incoming_edges: int64[edges], the numbers of the edges, sorted by target.

    Raises:
        GraphError: if the sizes of arrays differ, a number is negative or an edge goes back.
    """

    time: Int64Array
    memory: Int64Array
    source: Int64Array
    target: Int64Array
    bytes: Int64Array
    outgoing: Int64Array = field(init=False)
    incoming: Int64Array = field(init=False)
    incoming_edges: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        values = {name: np.array(getattr(self, name), dtype=np.int64) for name in _GIVEN}
        sizes = [array.size for array in values.values()]
        if sizes[0] != sizes[1] or len(set(sizes[2:])) != 1:
            raise GraphError(
                "a graph has a time and a memory for each node, and source, target and bytes for "
                f"each edge. Got arrays of {', '.join(map(str, sizes))} elements."
            )
        source, target = values["source"], values["target"]
        if any((array < 0).any() for array in values.values()) or (
            source.size and ((source >= target).any() or target.max() >= sizes[0])
        ):
            raise GraphError(
                "a graph's nodes are in topological order, its edges lead to later ones, and no "
                "number is negative. Got other numbers; sort the nodes first."
            )
        order = np.lexsort((target, source))
        for name in _GIVEN[2:]:
            values[name] = values[name][order]
        source, target = values["source"], values["target"]
        values["outgoing"] = offsets_of(np.bincount(source, minlength=sizes[0]))
        values["incoming"] = offsets_of(np.bincount(target, minlength=sizes[0]))
        values["incoming_edges"] = np.argsort(target, kind="stable")
        for name, array in values.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def of_edges(
        cls,
        time: Sequence[int] | Int64Array,
        memory: Sequence[int] | Int64Array,
        edges: Sequence[tuple[int, int, int]],
    ) -> Dag:
        """Return the graph with the given edges, each (source, target, bytes)."""
        columns = np.array(edges, dtype=np.int64).reshape(-1, 3).T
        return cls(np.asarray(time), np.asarray(memory), *columns)

    def __len__(self) -> int:
        return int(self.time.size)


_GIVEN = ("time", "memory", "source", "target", "bytes")


def quotient_order(dag: Dag, group: Int64Array, groups: int) -> Int64Array | None:
    """Return int64[groups]: a topological order of groups of nodes; None if they form a cycle.

    Among the groups that can come next, the one with the earliest node comes first.
    """
    order = _order(group, groups, dag.source, dag.target)
    return order if order.size == groups else None


@numba.njit(cache=True, nogil=True)
def _order(group: Int64Array, groups: int, source: Int64Array, target: Int64Array) -> Int64Array:
    """Return `quotient_order` by Kahn's algorithm; the result is shorter if there is a cycle."""
    first = np.full(groups, group.size, np.int64)
    for node in range(group.size - 1, -1, -1):
        first[group[node]] = node
    missing = np.zeros(groups, np.int64)  # by group: edges from groups that are not yet ordered
    begin = np.zeros(groups + 1, np.int64)
    for edge in range(source.size):
        if group[source[edge]] != group[target[edge]]:
            missing[group[target[edge]]] += 1
            begin[group[source[edge]] + 1] += 1
    for number in range(groups):
        begin[number + 1] += begin[number]
    place = begin[:-1].copy()
    targets = np.empty(begin[-1], np.int64)
    for edge in range(source.size):
        here, there = group[source[edge]], group[target[edge]]
        if here != there:
            targets[place[here]] = there
            place[here] += 1
    order = np.empty(groups, np.int64)
    size = 0
    ready = [(first[number], number) for number in range(groups) if missing[number] == 0]
    heap = sorted(ready)
    while len(heap) > 0:
        _, here = heap.pop(0)
        order[size] = here
        size += 1
        for slot in range(begin[here], begin[here + 1]):
            there = targets[slot]
            missing[there] -= 1
            if missing[there] == 0:
                low = 0
                while low < len(heap) and heap[low][0] < first[there]:
                    low += 1
                heap.insert(low, (first[there], there))
    return order[:size]
