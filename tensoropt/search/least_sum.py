"""The least sum of tables by eliminating one node after the other: exact, for one objective."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Edge, Problem

__all__ = ["Term", "least_sum", "time_terms"]

Int64Array = npt.NDArray[np.int64]
Scope = tuple[int, ...]
Term = tuple[Scope, Int64Array]
"""Costs over some nodes, numbers ascending: an axis for each, as long as it has choices."""


def time_terms(problem: Problem, kept: Sequence[Int64Array]) -> list[Term]:
    """The times of nodes and edges, for the configurations in ``kept``."""
    found: list[Term] = [
        ((number,), node.time[own])
        for number, (node, own) in enumerate(zip(problem.nodes, kept, strict=True))
    ]
    names = [own.tobytes() for own in kept]
    known: dict[tuple[int, int, int, bytes, bytes], Int64Array] = {}
    between: dict[Scope, list[Int64Array]] = {}
    for edge in problem.edges:
        slots = id(edge.source_slots), id(edge.target_slots)
        key = id(edge.time), *slots, names[edge.source], names[edge.target]
        if key not in known:
            known[key] = _times(edge, kept[edge.source], kept[edge.target])
        between.setdefault((edge.source, edge.target), []).append(known[key])
    for scope, tables in between.items():
        found.append((scope, tables[0] if len(tables) == 1 else np.sum(tables, axis=0)))
    return found


def _times(edge: Edge, near: Int64Array, far: Int64Array) -> Int64Array:
    found: Int64Array = edge.time[edge.source_slots[near][:, None], edge.target_slots[far]]
    return found


def least_sum(counts: Sequence[int], terms: Iterable[Term], most_cells: int) -> list[int] | None:
    """The choice for every node with the least sum of all terms; None where that is too much work.

    Bucket elimination (Dechter, 1999): of all terms that a node is in, the least over its choices
    is a term over its neighbours. The node with the smallest such term is next. Of equally good
    choices the first is made.

    Args:
        counts: how many choices each node has.
        terms: what is added up; a node may be in any number of terms.
        most_cells: the most cells that a table may have.

    Returns:
        A choice for every node.
    """
    own: list[dict[Scope, Int64Array]] = [{} for _ in counts]
    for scope, table in terms:
        # A node without a choice is in no scope.
        free = tuple(node for node in scope if counts[node] > 1)
        _insert(own, free, table.reshape([counts[node] for node in free]))
    beside = [{node for scope in each for node in scope} for each in own]
    decided: list[tuple[int, Scope, Int64Array]] = []
    waiting = {node for node, count in enumerate(counts) if count > 1}
    queue = [(_cells(counts, beside[node]), node) for node in sorted(waiting)]
    heapq.heapify(queue)
    while waiting:
        cells, node = heapq.heappop(queue)
        if node not in waiting or cells != _cells(counts, beside[node]):
            continue
        if cells > most_cells:
            return None
        waiting.remove(node)
        scope, table = _joined(counts, own[node])
        axis = scope.index(node)
        rest = scope[:axis] + scope[axis + 1 :]
        decided.append((node, rest, table.argmin(axis=axis)))
        for old in list(own[node]):
            for member in old:
                del own[member][old]
        _insert(own, rest, table.min(axis=axis))
        for other in rest:
            beside[other].update(rest)
            beside[other].discard(node)
            heapq.heappush(queue, (_cells(counts, beside[other]), other))
    found = [0] * len(counts)
    for node, rest, best in reversed(decided):
        found[node] = int(best[tuple(found[other] for other in rest)])
    return found


def _cells(counts: Sequence[int], nodes: Iterable[int]) -> int:
    return prod(counts[node] for node in nodes)


def _insert(own: Sequence[dict[Scope, Int64Array]], scope: Scope, table: Int64Array) -> None:
    """Add a term to every node of its scope; terms over the same nodes become one."""
    if not scope:
        return
    known = own[scope[0]].get(scope)
    whole = table if known is None else known + table
    for node in scope:
        own[node][scope] = whole


def _joined(counts: Sequence[int], terms: Mapping[Scope, Int64Array]) -> Term:
    """The sum of some terms, over all their nodes."""
    scope = tuple(sorted({node for each in terms for node in each}))
    total = np.zeros([counts[node] for node in scope], dtype=np.int64)
    for each, table in terms.items():
        total += table.reshape([counts[node] if node in each else 1 for node in scope])
    return scope, total
