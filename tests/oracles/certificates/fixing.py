"""Fixing by reduced costs: excludes configurations that no strategy as fast as a claimed one can
have.

A linear program for the whole problem may be too large, although most of it is far from any answer.
Let T be the claimed least time within a memory limit M. A strategy as good as the claim costs at
most a T + b M, counted as a time + b memory, for any a and b. Costs may be moved between a node and
its edges without changing the cost of any strategy. After such moves, the sum of the least costs of
all nodes and edges is a lower bound, also for strategies with a given configuration. A
configuration whose bound exceeds a T + b M is excluded, and so is a pair of slots at the ends of an
edge.

The claim is not trusted: if a strategy is faster than T, all its configurations stay, and the
linear program finds it. If every strategy costs at least B, none within the limit is faster than (B
- b M) / a, which serves as a bound if the program is not solved.

All numbers are integers, so a bound is exact. Its tightness depends on the moves: costs move along
the graph and back, from each node to the edges that follow.
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
_LARGEST = 2**54  # largest a T + b M; costs of configurations may be hundreds of times larger


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """The configurations of strategies as good as the claim.

    Attributes:
        left: the remaining configurations.
        cells: for each edge in ``left``, bool[source slots, target slots]: the remaining pairs of
            slots.
        bound: nanoseconds; no strategy within the limit is faster.
    """

    left: Reduced
    cells: tuple[BoolArray, ...]
    bound: int

    @property
    def variables(self) -> int:
        """The number of configurations and of edges' cells."""
        return self.left.configurations + sum(int(own.sum()) for own in self.cells)


def fixed(left: Reduced, limit: int, claimed: int, worth: float) -> Fixed | None:
    """Exclude configurations of which no strategy is as good as the claim.

    Args:
        left: the remaining configurations of a problem.
        limit: memory limit in bytes.
        claimed: claimed least time in nanoseconds.
        worth: nanoseconds per byte, b / a.

    Returns:
        The rest; None if no strategy is as good as the claim.
    """
    a, b = _weights(limit, claimed, worth)
    most = a * claimed + b * limit
    bound = 0
    for number in range(_ROUNDS):
        moved = _Moved(left, a, b)
        for _ in range(_SWEEPS):
            moved.sweep(range(len(left.kept)))
            moved.sweep(range(len(left.kept) - 1, -1, -1))
        # Excluded strategies take more than the claimed time.
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
        left = fewer  # bounds of fewer configurations are tighter
    raise AssertionError("the last round returns")


def _weights(limit: int, claimed: int, worth: float) -> tuple[int, int]:
    """Integers for a and b."""
    a = int(_LARGEST / (claimed + worth * limit)) if claimed + worth * limit > 0 else 1
    return max(a, 1), round(a * worth)


class _Moved:
    """Costs after moves between nodes and edges.

    Attributes:
        nodes: int64[K] for each node.
        edges: int64[source slots, target slots] for each edge.
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
        """Move all costs in the direction of ``order``; bounds do not fall."""
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
        """A lower bound of the cost of all strategies."""
        return sum(int(own.min()) for own in (*self.nodes, *self.edges))

    def bounds(self) -> list[Int64Array]:
        """Lower bounds of the costs of strategies with each configuration."""
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
        """Lower bounds of the costs of strategies with each pair of slots at an edge's ends."""
        least = self.least
        found = [cells + (least - int(cells.min())) for cells in self.edges]
        for node, own in enumerate(self.nodes):
            for number, first, _, slots in self._around[node]:
                count = self._seen(number, first).shape[0]
                # A slot without a configuration is in no strategy.
                more = np.full(count, _LARGEST, dtype=np.int64)
                np.minimum.at(more, slots, own - own.min())
                found[number] += more[:, None] if first else more[None, :]
        return found

    def _seen(self, number: int, first: bool) -> Int64Array:
        """A view of an edge's costs, with the slots of one end first."""
        return self.edges[number] if first else self.edges[number].T


def _ends(edge: Joined) -> tuple[tuple[int, int, bool], tuple[int, int, bool]]:
    return (edge.source, edge.target, True), (edge.target, edge.source, False)
