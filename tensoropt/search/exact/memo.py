"""Eliminations that are alike, as those in the layers of a model, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.search.numbering import Numbering
from tensoropt.search.pareto.back_pointers import UNIT, BackPointers
from tensoropt.search.pareto.table import Table

__all__ = ["Memo", "made"]

Compute = Callable[[list[Table], BackPointers], Table]
"""Makes a table of others; every point of it is of one point of each at most."""


@dataclass(slots=True, eq=False)
class Memo:
    """Tables made of others, by the costs of those.

    Which of their points every point is made of is the same wherever the costs are; only what these
    points stand for is not.
    """

    _made: dict[int, tuple[Table, Int64Array]] = field(default_factory=dict)
    _numbering: Numbering = field(default_factory=Numbering)

    def table(
        self,
        kind: str,
        tables: Sequence[Table],
        slots: Sequence[Int64Array],
        compute: Compute,
        pointers: BackPointers,
    ) -> Table:
        """What ``compute`` makes of tables.

        Args:
            kind: what is done with them.
            tables: the tables.
            slots: whatever else decides on it.
            compute: does it, with back pointers to the points of the tables.
            pointers: of the points here.
        """
        arrays = [array for table in tables for array in (table.offsets, table.memory, table.time)]
        chooses = [bool(table.identity.any()) for table in tables]  # an edge's costs do not
        key = self._numbering.of(kind, *chooses, *arrays, *slots)
        if key not in self._made:
            own = BackPointers(pointers.most_points)
            leaves = [
                replace(table, identity=own.leaves(number, table.memory.size)) if some else table
                for number, (table, some) in enumerate(zip(tables, chooses, strict=True))
            ]
            made = compute(leaves, own)
            points = own.unroll(made.identity, len(tables))
            self._made[key] = made, np.ascontiguousarray(points.T, dtype=np.int64)
        made, parts = self._made[key]
        identity: Int64Array = np.full(made.memory.size, UNIT, dtype=np.int64)
        for table, part, some in zip(tables, parts, chooses, strict=True):
            if some:
                identity = pointers.pairs(identity, table.identity[part])
        return replace(made, identity=identity)


def made(
    kind: str,
    tables: list[Table],
    slots: Sequence[Int64Array],
    compute: Compute,
    pointers: BackPointers,
    memo: Memo | None,
) -> Table:
    """What ``compute`` makes of tables, by a memo if there is one; see `Memo.table`."""
    if memo is None:
        return compute(tables, pointers)
    return memo.table(kind, tables, slots, compute, pointers)
