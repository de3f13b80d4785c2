"""Pruning of points that no strategy better than all known ones can have.

Message passing (`message_passing`) gives lower bounds for several weights (a bound set: Ehrgott and
Gandibleux, "Bound sets for biobjective combinatorial optimization problems", 2007). Since messages
only move cost, they bound a part of a strategy, too: the part's weighted cost, less the messages of
its edges to the other nodes, is at most the cost of every strategy that contains it, less the bound
on the other nodes. So a point of a table is dropped, whichever nodes were eliminated into it, if no
strategy with it can lie in the search region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array, offsets_of
from tensoropt.search.pareto.reduce import read_only
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.pareto.table import Table

__all__ = ["BoundSet"]

# Children of a node in the tree of corners.
_BRANCHES = 16


@dataclass(frozen=True, eq=False)
class BoundSet:
    """Bounds for several weights, and the region of strategies better than the known ones.

    Attributes:
        weights: W pairs.
        region: the search region of the known strategies.
        least: float64[W], a bound on every strategy; 0 if the bounds given are of whole strategies.
    """

    weights: Sequence[Weights]
    region: SearchRegion
    least: Float64Array | float = 0.0

    @cached_property
    def _limits(self) -> tuple[Float64Array, Int64Array]:
        """The highest weighted costs of strategies below each corner, as a tree.

        The leaves are the corners. A node above allows every cost that one of its children allows.

        Returns:
            float64[nodes of the tree, W], leaves first, and int64[levels + 1], where each level
                begins.
        """
        levels = [self.region.limits(self.weights)]
        while len(levels[-1]) > 1:
            starts = np.arange(0, len(levels[-1]), _BRANCHES)
            levels.append(np.maximum.reduceat(levels[-1], starts))
        return np.concatenate(levels), offsets_of([len(own) for own in levels])

    @cached_property
    def _per_unit(self) -> tuple[Float64Array, Float64Array]:
        """float64[W] each: the weights of a nanosecond, and of a byte."""
        per_nanosecond, per_byte = np.array(self.weights, dtype=np.float64).T.copy()
        return per_nanosecond, per_byte

    def undominated(self, table: Table, rest: Float64Array) -> Table:
        """Return the points of ``table`` that a strategy better than the known ones can have.

        Args:
            rest: float64[rows, W] or [1, W]: added to a point's weighted cost, it bounds every
                strategy with the point, less ``least``.
        """
        if table.memory.size == 0:
            return table
        base = np.ascontiguousarray(rest + self.least)
        if len(base) < table.rows:
            base = np.repeat(base, table.rows, axis=0)
        alive = self._alive(table.offsets, table.memory, table.time, base)
        if alive.all():
            return table
        sizes = np.add.reduceat(np.append(alive, False).astype(np.int64), table.offsets[:-1])
        sizes[table.sizes == 0] = 0
        return Table(
            offsets_of(sizes), table.memory[alive], table.time[alive], table.identity[alive]
        )

    def possible(self, bounds: Float64Array) -> BoolArray:
        """Reduced-cost fixing: mark the things that a better strategy may contain (Dantzig et al.,
        1954, for one objective).

        Args:
            bounds: float64[things, W], a bound on the weighted cost of every strategy with each
                thing.
        """
        nothing = np.zeros(len(bounds), dtype=np.int64)
        return self._alive(np.arange(len(bounds) + 1), nothing, nothing, bounds)

    def _alive(
        self, offsets: Int64Array, memory: Int64Array, time: Int64Array, base: Float64Array
    ) -> BoolArray:
        points = read_only(memory), read_only(time), read_only(base)
        alive: BoolArray = _alive(offsets, *points, *self._per_unit, *self._limits)
        return alive


@numba.njit(cache=True, nogil=True)
def _alive(
    offsets: Int64Array,
    memory: Int64Array,
    time: Int64Array,
    base: Float64Array,
    per_nanosecond: Float64Array,
    per_byte: Float64Array,
    limits: Float64Array,
    levels: Int64Array,
) -> BoolArray:
    """Mark the points for which some corner is beyond all their lines.

    ``limits`` has the nodes of the tree of corners, [node, line]. The line that failed last and the
    corner that sufficed last are tested first.
    """
    alive = np.zeros(memory.size, np.bool_)
    weights = per_byte.size
    lines = np.empty(weights)
    top = levels.size - 2
    stack = np.empty(64 + _BRANCHES * levels.size, np.int64)
    at_level = np.empty(stack.size, np.int64)
    hint, worst = 0, 0
    for row in range(offsets.size - 1):
        for point in range(offsets[row], offsets[row + 1]):
            fits = True
            for line in range(weights):
                lines[line] = (
                    base[row, line]
                    + per_nanosecond[line] * time[point]
                    + per_byte[line] * memory[point]
                )
                fits &= lines[line] <= limits[hint, line]
            if fits:
                alive[point] = True
                continue
            height = 1
            stack[0], at_level[0] = 0, top
            while height > 0:
                height -= 1
                place, level = stack[height], at_level[height]
                corner = levels[level] + place
                if lines[worst] > limits[corner, worst]:
                    continue
                fits = True
                for line in range(weights):
                    if lines[line] > limits[corner, line]:
                        fits = False
                        worst = line
                        break
                if not fits:
                    continue
                if level == 0:
                    alive[point] = True
                    hint = corner
                    break
                last = min((place + 1) * _BRANCHES, levels[level] - levels[level - 1])
                for below in range(place * _BRANCHES, last):
                    stack[height], at_level[height] = below, level - 1
                    height += 1
    return alive
