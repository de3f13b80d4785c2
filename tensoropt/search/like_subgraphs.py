"""Like subgraphs, as the layers of a model: an elimination is worked out once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table

__all__ = ["Compute", "Memo"]

Compute = Callable[[list[Table], BackPointers], Table]
"""Makes a table from others; each of its points has at most one point of each other table."""


class _Numbering:
    """Equal numbers for equal things, in the order of first requests."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # Elements of an array are read once. The array is held, so that no other gets its id.
        self._arrays: dict[int, tuple[Int64Array, int]] = {}

    def of(self, *what: Hashable | Int64Array) -> int:
        """Return the number of a combination of things; arrays, which must not change, count by
        elements."""
        key = tuple(self._array(each) if isinstance(each, np.ndarray) else each for each in what)
        return self._numbers.setdefault(key, len(self._numbers))

    def _array(self, array: Int64Array) -> int:
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, self.of(array.tobytes())
        return self._arrays[id(array)][1]


@dataclass(slots=True, eq=False)
class Memo:
    """Tables that were made from other tables, found again by the costs of the other tables.

    For equal costs the new points consist of the same points; only their identities differ.
    """

    _made: dict[int, tuple[Table, Int64Array]] = field(default_factory=dict)
    _numbering: _Numbering = field(default_factory=_Numbering)

    def table(
        self,
        kind: str,
        tables: Sequence[Table],
        slots: Sequence[Int64Array],
        compute: Compute,
        pointers: BackPointers,
    ) -> Table:
        """Return the table that ``compute`` makes from tables.

        Args:
            kind: the name of the operation.
            tables: its input.
            slots: everything else that the result depends on.
            compute: the operation, called with a store whose leaves are the points of the tables.
            pointers: the store of the result's identities.
        """
        arrays = [array for table in tables for array in (table.offsets, table.memory, table.time)]
        chooses = [bool(table.identity.any()) for table in tables]  # an edge's costs do not
        key = self._numbering.of(kind, *chooses, *arrays, *slots)
        if key not in self._made:
            own = BackPointers(pointers.most_points, pointers.additions)
            leaves = [
                replace(table, identity=own.leaves(number, table.memory.size)) if some else table
                for number, (table, some) in enumerate(zip(tables, chooses, strict=True))
            ]
            made = compute(leaves, own)
            pointers.additions = own.additions
            points = own.unroll(made.identity, len(tables))
            self._made[key] = made, np.ascontiguousarray(points.T, dtype=np.int64)
        made, parts = self._made[key]
        identity: Int64Array = np.zeros(made.memory.size, dtype=np.int64)
        for table, part, some in zip(tables, parts, chooses, strict=True):
            if some:
                identity = pointers.pairs(identity, table.identity[part])
        return replace(made, identity=identity)
