"""Where a step has branches that need nothing of each other, and how two sides are made of them.

Unity splits a graph at post-dominators, and where what is left falls apart, in parallel (section
5.2). Here the forward pass is split at one join: what depends on it is the *rest*, and the parts
that what is left falls into are *branches*. They become two sides, by quantities of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tensoropt.arrays import BoolArray, Int64Array

__all__ = ["REST", "Fork", "find_fork", "two_sides"]

REST = 2
"""The block of the rest; the sides are blocks 0 and 1."""
_JOINS = 8  # that are looked at, those that join most work
_SMALL = 0.01  # of all work: branches that need no devices of their own


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """Branches and what joins them.

    Attributes:
        branch: int64[components], the branch of each, by descending work; -1 for the rest.
        count: how many branches there are.
    """

    branch: Int64Array
    count: int


def find_fork(work: Sequence[float], edges: Sequence[tuple[int, int]]) -> Fork | None:
    """The fork with most work beside its largest branch; None where nothing falls apart.

    Of what joins branches (an operator that is the first to read two of them) those are looked at
    that bring most together.

    Args:
        work: of each component, in topological order.
        edges: (from, to) between them.
    """
    count = len(work)
    readers: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        readers[source].append(target)
    everywhere = _branches(np.zeros(count, bool), edges, work)
    found, most = everywhere, _beside_the_largest(everywhere, work)
    for join in _joins(work, edges):
        is_rest = np.zeros(count, bool)
        is_rest[join] = True
        for place in range(join, count):
            if is_rest[place]:
                is_rest[readers[place]] = True
        split = _branches(is_rest, edges, work)
        beside = _beside_the_largest(split, work)
        if beside > most:
            found, most = split, beside
    return found if most > _SMALL * sum(work) else None


def two_sides(fork: Fork, work: Sequence[float], shares: tuple[int, int]) -> Int64Array | None:
    """int64[components]: the side of each, 0 or 1, or `REST`; None where one side has it all.

    Branches are placed by descending work, each where it is finished first; small ones are on the
    side of the rest, the second.

    Args:
        fork: the branches.
        work: of each component.
        shares: devices of each side.
    """
    totals = np.bincount(fork.branch[fork.branch >= 0], np.asarray(work)[fork.branch >= 0])
    large = np.flatnonzero(totals > _SMALL * totals.sum())
    sides, busy = np.ones(fork.count, np.int64), [0.0, 0.0]
    for number in large.tolist():
        ends = [(busy[side] + totals[number]) / shares[side] for side in (0, 1)]
        sides[number] = int(ends[1] < ends[0])
        busy[sides[number]] += totals[number]
    if not all(busy):
        return None
    return np.where(fork.branch < 0, REST, sides[np.maximum(fork.branch, 0)])


def _joins(work: Sequence[float], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Components at which parts come together, those first that join most work beside the
    largest part."""
    inputs: dict[int, list[int]] = {}
    for source, target in edges:
        inputs.setdefault(target, []).append(source)
    parts, total = DisjointSet(range(len(work))), dict(enumerate(work))
    found = []
    for place in range(len(work)):
        joined = {parts[each] for each in inputs.get(place, ())}
        sizes = [total[each] for each in joined]
        if len(joined) > 1:
            found.append((sum(sizes) - max(sizes), place))
        for each in joined:
            parts.merge(each, place)
        total[parts[place]] = work[place] + sum(sizes)
    return [place for _, place in sorted(found, reverse=True)[:_JOINS]]


def _branches(is_rest: BoolArray, edges: Sequence[tuple[int, int]], work: Sequence[float]) -> Fork:
    """What all but the rest falls into."""
    count = len(work)
    kept = [edge for edge in edges if not is_rest[edge[1]]]  # the rest is all behind its join
    source, target = np.array(kept, np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(kept)), (source, target)), (count, count))
    _, part = connected_components(links, directed=False)
    totals = np.bincount(part[~is_rest], np.asarray(work)[~is_rest], int(part.max()) + 1)
    present = np.unique(part[~is_rest])
    order = present[np.argsort(-totals[present], kind="stable")]
    number = np.full(int(part.max()) + 1, -1, np.int64)
    number[order] = np.arange(len(order))
    return Fork(np.where(is_rest, -1, number[part]), len(order))


def _beside_the_largest(fork: Fork, work: Sequence[float]) -> float:
    return float(np.asarray(work)[fork.branch > 0].sum())
