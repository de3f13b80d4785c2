"""Coarsening: small groups merge with small neighbours, round after round (section III-B)."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["coarsen"]


def coarsen(dag: Dag, fewest: int, memory_limit: int) -> list[Int64Array]:
    """The group of every node in each round, from every node alone to the coarsest.

    In a round groups are taken in ascending order of time. Each merges with that neighbour of
    least time which has not merged in this round, with which it fits the memory, and with which it
    is convex. Convexity is asked of the groups as they are by then: no path leads from one to the
    other through a third. So not only has each group no path that leaves and re-enters, which two
    groups that need each other may have as well, but all groups together have an order.

    Args:
        dag: the nodes.
        fewest: groups at which to stop.
        memory_limit: bytes of a group at most.

    Returns:
        int64[nodes] for every round, groups numbered from 0 without gaps.
    """
    nodes = np.arange(len(dag), dtype=np.int64)
    rounds = [nodes]
    state = (
        nodes.copy(),  # the group of each node
        nodes.copy(),  # of each group its topological position
        nodes.copy(),  # of each position its group; -1 where there is none any more
        nodes.copy(),  # of each group its last member
        np.full(len(dag), -1, np.int64),  # of each node the next member of its group
        dag.time.copy(),
        dag.memory.copy(),
    )
    edges = (
        dag.outgoing,
        dag.target,
        dag.incoming,
        np.ascontiguousarray(dag.source[dag.incoming_edges]),
    )
    count = len(dag)
    while count > fewest:
        left = _round(state, edges, fewest, count, memory_limit)
        if left == count:
            break
        count = left
        rounds.append(np.unique(state[0], return_inverse=True)[1].astype(np.int64))
    return rounds


_State = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
_Edges = tuple[Int64Array, Int64Array, Int64Array, Int64Array]


@numba.njit(cache=True, nogil=True)
def _round(state: _State, edges: _Edges, fewest: int, count: int, memory_limit: int) -> int:
    """Merge pairs of groups in place; returns how many groups are left.

    A group has the number of its first member; those behind it are a linked list.
    """
    group, position, _order, _last, following, time, memory = state
    outgoing, target, incoming, source = edges
    size = group.size
    alive = np.array([node for node in range(size) if group[node] == node])
    by_time = alive[np.argsort(time[alive], kind="mergesort")]
    merged = np.zeros(size, np.bool_)
    seen = np.zeros(size, np.int64)  # by which search
    search = 0
    stack = np.empty(size, np.int64)
    for chosen in by_time:
        if count <= fewest:
            break
        if merged[chosen]:
            continue
        search += 1
        seen[chosen] = search
        near = [np.int64(0) for _ in range(0)]
        member = chosen
        while member >= 0:
            for edge in range(outgoing[member], outgoing[member + 1]):
                other = group[target[edge]]
                if seen[other] != search:
                    seen[other] = search
                    near.append(other)
            for edge in range(incoming[member], incoming[member + 1]):
                other = group[source[edge]]
                if seen[other] != search:
                    seen[other] = search
                    near.append(other)
            member = following[member]
        neighbours = np.array([n for n in near if not merged[n]], np.int64)
        for other in neighbours[np.argsort(time[neighbours], kind="mergesort")]:
            if memory[chosen] + memory[other] > memory_limit:
                continue
            early, late = chosen, other
            if position[early] > position[late]:
                early, late = late, early
            search += 1
            reached = _reached(state, edges, early, late, seen, search, stack)
            if not reached:
                continue
            _merge(state, early, late, seen, search)
            merged[chosen] = merged[other] = True
            count -= 1
            break
    return count


@numba.njit(cache=True, nogil=True)
def _reached(
    state: _State,
    edges: _Edges,
    early: int,
    late: int,
    seen: Int64Array,
    search: int,
    stack: Int64Array,
) -> bool:
    """Mark the groups before ``late`` that ``early`` leads to; False if one leads to ``late``."""
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
    """Make two groups one; between them in the order comes first what ``early`` does not lead to,
    then they, then the rest."""
    group, position, order, last, following, time, memory = state
    begin, end = position[early], position[late]
    behind = [np.int64(0) for _ in range(0)]
    place = begin
    for slot in range(begin + 1, end):
        other = order[slot]
        if other < 0:
            continue
        if seen[other] == search:
            behind.append(other)
        else:
            order[place] = other
            position[other] = place
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
    for other in behind:
        place += 1
        order[place] = other
        position[other] = place
    for slot in range(place + 1, end + 1):
        order[slot] = -1
