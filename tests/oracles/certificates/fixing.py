"""Leave out what no strategy can have that is as fast as is claimed: fixing by reduced costs.

Where the linear program is too large, most of it is far from any answer. Let a strategy be claimed
to be the fastest within a memory limit M, with time T. Whatever is as good costs at most
a T + b M in a time + b memory, for any a and b. Costs may be moved between a node and its edges
without a change of any strategy's cost, so that what is left of them bounds from below, by the
least of every node and of every edge, what a strategy with some configuration costs. If that is
more than a T + b M, the configuration can go: not by trust in the claim, for if a strategy is
faster than T, all its configurations stay, and the linear program finds it. So can pairs of slots
at the ends of an edge. And if every strategy costs at least B, none within the limit is faster than
(B - b M) / a: a bound of its own, for where the program is not solved.

All in whole numbers: a bound holds as it is written. How tight it is depends on how costs are
moved: along the graph and back, from every node to the edges that are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tests.oracles.certificates.reduction import Joined, Reduced, restricted

__all__ = ["Fixed", "fixed"]


_SWEEPS = 30
_ROUNDS = 8
_WORTHWHILE = 0.95
_LARGEST = 2**54  # of a T + b M; costs of single configurations may be hundreds of times more


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """What strategies as good as is claimed can have.

    Attributes:
        left: their configurations.
        cells: bool[source slots, target slots] of every edge in ``left``, the pairs of slots.
        bound: nanoseconds; no strategy within the limit is faster.
    """

    left: Reduced
    cells: tuple[BoolArray, ...]
    bound: int

    @property
    def variables(self) -> int:
        """How many configurations, and cells of edges."""
        return self.left.configurations + sum(int(own.sum()) for own in self.cells)


def fixed(left: Reduced, limit: int, claimed: int, worth: float) -> Fixed | None:
    """What is left without the configurations of no strategy as good as is claimed.

    Args:
        left: of a problem.
        limit: of memory, in bytes.
        claimed: nanoseconds.
        worth: of a byte, in nanoseconds: b / a.

    Returns:
        None if no strategy at all is as good.
    """
    a, b = _weights(limit, claimed, worth)
    most = a * claimed + b * limit
    bound = 0
    for number in range(_ROUNDS):
        moved = _Moved(left, a, b)
        for _ in range(_SWEEPS):
            moved.sweep(range(len(left.kept)))
            moved.sweep(range(len(left.kept) - 1, -1, -1))
        # What went before is only in strategies of more than the claimed time.
        bound = max(bound, min(-((b * limit - moved.least) // a), claimed))
        own = [np.flatnonzero(costs <= most) for costs in moved.bounds()]
        share = sum(each.size for each in own) / left.configurations
        if share > _WORTHWHILE or number == _ROUNDS - 1:
            if moved.least > most or not all(each.size for each in own):
                return None
            return Fixed(left, tuple(cells <= most for cells in moved.cell_bounds()), bound)
        fewer = restricted(left, own)
        if fewer is None:
            return None
        left = fewer  # with less to choose from, bounds are tighter
    raise AssertionError("the last round returns")


def _weights(limit: int, claimed: int, worth: float) -> tuple[int, int]:
    """Whole numbers for a and b."""
    a = int(_LARGEST / (claimed + worth * limit)) if claimed + worth * limit > 0 else 1
    return max(a, 1), round(a * worth)


class _Moved:
    """Costs after moves between nodes and edges.

    Attributes:
        nodes: int64[K] of every node.
        edges: int64[source slots, target slots] of every edge.
    """

    def __init__(self, left: Reduced, a: int, b: int) -> None:
        pairs = zip(left.time, left.memory, strict=True)
        self.nodes = [a * time + b * memory for time, memory in pairs]
        self.edges = [a * edge.time + b * edge.memory for edge in left.edges]
        self._around: list[list[tuple[int, bool, int, Int64Array]]] = [[] for _ in left.kept]
        for number, edge in enumerate(left.edges):
            for node, other, first in _ends(edge):
                slots = edge.source_slots if first else edge.target_slots
                self._around[node].append((number, first, other, slots))

    def sweep(self, order: Sequence[int]) -> None:
        """Move all costs to where the order leads: bounds never fall."""
        place = {node: number for number, node in enumerate(order)}
        for node in order:
            own = self.nodes[node]
            for number, first, _, slots in self._around[node]:
                cells = self._seen(number, first)
                least = cells.min(axis=1)
                cells -= least[:, None]
                own += least[slots]
            later = [end for end in self._around[node] if place[end[2]] > place[node]]
            for count, (number, first, _, slots) in enumerate(later):
                cells = self._seen(number, first)
                least = np.full(len(cells), own.max(), dtype=np.int64)
                np.minimum.at(least, slots, own)
                share = least // (len(later) - count)
                cells += share[:, None]
                own -= share[slots]

    @property
    def least(self) -> int:
        """What every strategy costs at least."""
        return sum(int(own.min()) for own in (*self.nodes, *self.edges))

    def bounds(self) -> list[Int64Array]:
        """What a strategy with each configuration costs at least."""
        least = self.least
        found = []
        for node, own in enumerate(self.nodes):
            around = [self._seen(number, first) for number, first, _, _ in self._around[node]]
            more = own.copy()
            for cells, (_, _, _, slots) in zip(around, self._around[node], strict=True):
                more += cells.min(axis=1)[slots]
            rest = least - int(own.min()) - sum(int(cells.min()) for cells in around)
            found.append(more + rest)
        return found

    def cell_bounds(self) -> list[Int64Array]:
        """What a strategy with each pair of slots at the ends of an edge costs at least."""
        least = self.least
        found = [cells + (least - int(cells.min())) for cells in self.edges]
        for node, own in enumerate(self.nodes):
            for number, first, _, slots in self._around[node]:
                count = self._seen(number, first).shape[0]
                # A slot that no configuration has is in no strategy.
                more = np.full(count, _LARGEST, dtype=np.int64)
                np.minimum.at(more, slots, own - own.min())
                found[number] += more[:, None] if first else more[None, :]
        return found

    def _seen(self, number: int, first: bool) -> Int64Array:
        """An edge's costs, the slots of one end first: a view."""
        return self.edges[number] if first else self.edges[number].T


def _ends(edge: Joined) -> tuple[tuple[int, int, bool], tuple[int, int, bool]]:
    return (edge.source, edge.target, True), (edge.target, edge.source, False)
