"""Like subgraphs, as the layers of a model: numbered, so that an elimination is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.search.pareto.back_pointers import UNIT, BackPointers
from tensoropt.search.pareto.table import Table

__all__ = ["Compute", "Memo", "Numbering"]

Compute = Callable[[list[Table], BackPointers], Table]
"""Makes a table of others; every point of it is of one point of each at most."""


class Numbering:
    """Equal numbers for equal things, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # An array's elements are read once; it is held, so that no other gets its id.
        self._arrays: dict[int, tuple[Int64Array, int]] = {}

    def of(self, *what: Hashable | Int64Array) -> int:
        """The number of all that is equal to this; of arrays, which nobody changes, by elements."""
        key = tuple(self._array(each) if isinstance(each, np.ndarray) else each for each in what)
        return self._numbers.setdefault(key, len(self._numbers))

    def _array(self, array: Int64Array) -> int:
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, self.of(array.tobytes())
        return self._arrays[id(array)][1]


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
        identity: Int64Array = np.full(made.memory.size, UNIT, dtype=np.int64)
        for table, part, some in zip(tables, parts, chooses, strict=True):
            if some:
                identity = pointers.pairs(identity, table.identity[part])
        return replace(made, identity=identity)
