"""Coarsening: in each round, small groups merge with small neighbours (RaNNC, section III-B)."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["coarsen"]


def coarsen(dag: Dag, fewest: int, memory_limit: int) -> list[Int64Array]:
    """Return the group of every node in each round, from single nodes to the coarsest groups.

    A round takes the groups in ascending order of time. Each group merges with its shortest
    neighbour that has not merged in this round, fits the memory together with it, and is convex
    together with it: no path leads from one to the other through a third group. This test is made
    on the graph of the current groups. So the groups always have a topological order. (Two groups
    of nodes can be convex, each by itself, and still depend on each other.)

    Args:
        dag: the nodes.
        fewest: the number of groups at which to stop.
        memory_limit: the most bytes of a group.

    Returns:
        int64[nodes] for every round; groups are numbered from 0 without gaps.
    """
    nodes = np.arange(len(dag), dtype=np.int64)
    rounds = [nodes]
    state = (
        nodes.copy(),  # by node: its group
        nodes.copy(),  # by group: its topological position
        nodes.copy(),  # by position: the group there; -1 where a group was merged away
        nodes.copy(),  # by group: its last member
        np.full(len(dag), -1, np.int64),  # by node: the next member of its group
        dag.time.copy(),  # by group
        dag.memory.copy(),  # by group
    )
    edges = (
        dag.outgoing,
        dag.target,
        dag.incoming,
        np.ascontiguousarray(dag.source[dag.incoming_edges]),
    )
    count = len(dag)
    while count > fewest:
        count_after = _round(state, edges, fewest, count, memory_limit)
        if count_after == count:
            break
        count = count_after
        rounds.append(np.unique(state[0], return_inverse=True)[1].astype(np.int64))
    return rounds


_State = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
_Edges = tuple[Int64Array, Int64Array, Int64Array, Int64Array]


@numba.njit(cache=True, nogil=True)
def _round(state: _State, edges: _Edges, fewest: int, count: int, memory_limit: int) -> int:
    """Merge pairs of groups in place, and return the number of groups that remain.

    A group has the number of its first member. Its members are a linked list.
    """
    group, position, _order, _last, _following, time, memory = state
    size = group.size
    alive = np.array([node for node in range(size) if group[node] == node])
    by_time = alive[np.argsort(time[alive], kind="mergesort")]
    merged = np.zeros(size, np.bool_)
    seen = np.zeros(size, np.int64)  # by group: the last search that reached it
    search = 0
    stack = np.empty(size, np.int64)
    for chosen in by_time:
        if count <= fewest:
            break
        if merged[chosen]:
            continue
        search += 1
        near = _neighbours(state, edges, chosen, seen, search)
        neighbours = np.array([n for n in near if not merged[n]], np.int64)
        for neighbour in neighbours[np.argsort(time[neighbours], kind="mergesort")]:
            if memory[chosen] + memory[neighbour] > memory_limit:
                continue
            early, late = chosen, neighbour
            if position[early] > position[late]:
                early, late = late, early
            search += 1
            if not _convex_together(state, edges, early, late, seen, search, stack):
                continue
            _merge(state, early, late, seen, search)
            merged[chosen] = merged[neighbour] = True
            count -= 1
            break
    return count


@numba.njit(cache=True, nogil=True)
def _neighbours(
    state: _State, edges: _Edges, chosen: int, seen: Int64Array, search: int
) -> list[np.int64]:
    """Return the groups that an edge links to the chosen one, each once."""
    group, following = state[0], state[4]
    outgoing, target, incoming, source = edges
    seen[chosen] = search
    neighbours = [np.int64(0) for _ in range(0)]
    member = chosen
    while member >= 0:
        for edge in range(outgoing[member], outgoing[member + 1]):
            neighbour = group[target[edge]]
            if seen[neighbour] != search:
                seen[neighbour] = search
                neighbours.append(neighbour)
        for edge in range(incoming[member], incoming[member + 1]):
            neighbour = group[source[edge]]
            if seen[neighbour] != search:
                seen[neighbour] = search
                neighbours.append(neighbour)
        member = following[member]
    return neighbours


@numba.njit(cache=True, nogil=True)
def _convex_together(
    state: _State,
    edges: _Edges,
    early: int,
    late: int,
    seen: Int64Array,
    search: int,
    stack: Int64Array,
) -> bool:
    """Whether no path leads from ``early`` to ``late`` through a third group.

    Groups that a path from ``early`` reaches, and that are ordered before ``late``, have ``search``
    in ``seen`` afterwards.
    """
    group, position, _, _, following, _, _ = state
    outgoing, target, _, _ = edges
    end = position[late]
    depth = 1
    stack[0] = early
    while depth > 0:
        depth -= 1
        here = stack[depth]
        member = here
        while member >= 0:
            for edge in range(outgoing[member], outgoing[member + 1]):
                there = group[target[edge]]
                if there == late:
                    if here != early:
                        return False
                elif seen[there] != search and position[there] < end and there != early:
                    seen[there] = search
                    stack[depth] = there
                    depth += 1
            member = following[member]
    return True


@numba.njit(cache=True, nogil=True)
def _merge(state: _State, early: int, late: int, seen: Int64Array, search: int) -> None:
    """Merge two groups, and order the groups between them anew.

    The groups between them that no path from ``early`` reaches come first, then the merged group,
    then the reached groups (those with ``search`` in ``seen``).
    """
    group, position, order, last, following, time, memory = state
    begin, end = position[early], position[late]
    reached = [np.int64(0) for _ in range(0)]
    place = begin
    for slot in range(begin + 1, end):
        between = order[slot]
        if between < 0:
            continue
        if seen[between] == search:
            reached.append(between)
        else:
            order[place] = between
            position[between] = place
            place += 1
    first, second = min(early, late), max(early, late)
    member = second
    while member >= 0:
        group[member] = first
        member = following[member]
    following[last[first]] = second
    last[first] = last[second]
    time[first] += time[second]
    memory[first] += memory[second]
    order[place] = first
    position[first] = place
    for between in reached:
        place += 1
        order[place] = between
        position[between] = place
    for slot in range(place + 1, end + 1):
        order[slot] = -1
