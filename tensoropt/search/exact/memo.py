"""Eliminations that are alike, as those in the layers of a model, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.search.pareto.back_pointers import UNIT, Derivations
from tensoropt.search.pareto.table import Table

__all__ = ["Memo"]

Compute = Callable[[list[Table], Derivations], Table]


@dataclass(slots=True, eq=False)
class Memo:
    """Tables made of others, by the arrays that those have their costs in.

    Which of their points every point is made of is the same wherever the costs are; only what these
    points stand for is not.
    """

    _known: dict[Hashable, tuple[Table, Int64Array]] = field(default_factory=dict)
    _arrays: list[object] = field(default_factory=list)
    _same: dict[bytes, Int64Array] = field(default_factory=dict)

    def same(self, array: Int64Array) -> Int64Array:
        """The first of all arrays that are equal to this."""
        return self._same.setdefault(array.tobytes(), array)

    def table(
        self,
        kind: str,
        tables: Sequence[Table],
        arrays: Sequence[Int64Array],
        compute: Compute,
        derivations: Derivations,
    ) -> Table:
        """What ``compute`` makes of tables.

        Args:
            kind: what is done with them.
            tables: the tables.
            arrays: whatever else decides on it.
            compute: does it, with tables whose points are named otherwise; every point that it
                makes is of one point of each.
            derivations: of the points' names here.
        """
        costs = [array for table in tables for array in (table.offsets, table.memory, table.time)]
        chooses = [bool(table.identity.any()) for table in tables]  # an edge's costs do not
        key = kind, *chooses, *map(id, costs), *map(id, arrays)
        if key not in self._known:
            self._arrays += [costs, arrays]  # whose ids are in the key, and no others'
            own = Derivations()
            named = [
                replace(table, identity=own.leaves(number, table.memory.size)) if some else table
                for number, (table, some) in enumerate(zip(tables, chooses, strict=True))
            ]
            made = compute(named, own)
            unrolled = own.unroll(made.identity, len(tables))
            self._known[key] = made, np.ascontiguousarray(unrolled.T, dtype=np.int64)
        made, parts = self._known[key]
        identity: Int64Array = np.full(made.memory.size, UNIT, dtype=np.int64)
        for table, part, some in zip(tables, parts, chooses, strict=True):
            if some:
                identity = derivations.pairs(identity, table.identity[part])
        return replace(made, identity=identity)
