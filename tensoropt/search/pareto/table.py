"""Ragged tables of frontiers in flat arrays: a row for each state of a node or cell of an edge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array, offsets_of
from tensoropt.search.pareto.back_pointers import UNIT, Derivations
from tensoropt.search.pareto.frontier import Points
from tensoropt.search.pareto.merge import merged_products
from tensoropt.search.pareto.reduce import row_offsets

__all__ = ["Cells", "Table", "joint_keys", "multiply"]


# Of so many possible keys, those that occur are counted off; of more they are sorted.
_FEW_KEYS = 1 << 16


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of points, each row a frontier, one after the other in three flat arrays.

    Attributes:
        offsets: int64[rows + 1], where each row starts; the last is the number of points.
        memory, time, identity: int64[points], as in ``Points``.
    """

    offsets: Int64Array
    memory: Int64Array
    time: Int64Array
    identity: Int64Array

    @classmethod
    def single(
        cls, memory: Int64Array, time: Int64Array, identity: Int64Array | None = None
    ) -> Table:
        """A row of one point for each element of ``memory`` and ``time``."""
        if identity is None:
            identity = np.full(memory.size, UNIT, dtype=np.int64)
        return cls(np.arange(memory.size + 1), memory.ravel(), time.ravel(), identity)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.offsets.size - 1)

    @cached_property
    def sizes(self) -> Int64Array:
        """int64[rows], the number of points in each."""
        found: Int64Array = self.offsets[1:] - self.offsets[:-1]
        return found

    @cached_property
    def is_single(self) -> bool:
        """Whether every row is a single point."""
        return self.memory.size == self.rows and bool((self.sizes == 1).all())

    @property
    def row_of_points(self) -> Int64Array:
        """int64[points], the row that each belongs to."""
        return np.repeat(np.arange(self.rows), self.sizes)

    @property
    def points(self) -> Points:
        """The points of all rows."""
        return Points(self.memory, self.time, self.identity)

    def take(self, rows: Int64Array) -> Table:
        """The rows numbered ``rows``, in that order."""
        if self.is_single:
            offsets = self.offsets[: rows.size + 1]
            if offsets.size <= rows.size:
                offsets = np.arange(rows.size + 1)
            return Table(offsets, self.memory[rows], self.time[rows], self.identity[rows])
        sizes = self.sizes[rows]
        offsets = offsets_of(sizes)
        shift = np.repeat(self.offsets[rows] - offsets[:-1], sizes)
        index = shift + np.arange(offsets[-1])
        return Table(offsets, self.memory[index], self.time[index], self.identity[index])

    def turned(self, count: int) -> Table:
        """The rows of pairs, of ``count`` times as many, by the second of each pair first."""
        if self.is_single:
            memory, time, identity = (
                np.ascontiguousarray(own.reshape(count, -1).T).ravel()
                for own in (self.memory, self.time, self.identity)
            )
            return Table(self.offsets, memory, time, identity)
        return self.take(np.arange(self.rows).reshape(count, -1).T.ravel())

    def group(self, groups: Int64Array, count: int) -> Table:
        """The union of the rows of each group: ``groups`` int64[rows] in 0 to ``count`` - 1."""
        if count == self.rows and (np.bincount(groups, minlength=count) == 1).all():
            return self.take(np.argsort(groups))
        own = np.flatnonzero(self.sizes)
        own = own[np.argsort(groups[own], kind="stable")]
        nothing = np.zeros(1, dtype=np.int64)
        rows, kept, _ = merged_products(
            (self.memory, self.time),
            (nothing, nothing),
            (
                self.offsets[own],
                self.sizes[own],
                np.zeros_like(own),
                np.ones_like(own),
                groups[own],
            ),
        )
        return Table(
            row_offsets(rows, count),
            self.memory[kept],
            self.time[kept],
            self.identity[kept],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The frontiers of an edge, seen from one of its ends.

    Attributes:
        near_slots: int64[states of the near node], the slot of each.
        far_slots: int64[states of the far node].
        near_count, far_count: how many slots there are; each is used by some state.
        table: row ``near * far_count + far`` is the frontier of that pair of slots.
        near_given, far_given: float64[slots, W], what the edge has given to the nodes at its ends
            (`tensoropt.search.bounds.pruning_context`), for W weights, which may be none.
        inside: float64[W], the least costs of the nodes that have been eliminated into it.
    """

    near_slots: Int64Array
    far_slots: Int64Array
    near_count: int
    far_count: int
    table: Table
    near_given: Float64Array
    far_given: Float64Array
    inside: Float64Array

    def flip(self) -> Cells:
        """The same edge seen from its other end."""
        return Cells(
            self.far_slots,
            self.near_slots,
            self.far_count,
            self.near_count,
            self.table.turned(self.near_count),
            self.far_given,
            self.near_given,
            self.inside,
        )

    def with_table(self, table: Table, *, flipped: bool = False) -> Cells:
        """The same slots with another table, and seen from the other end if ``flipped``."""
        cells = replace(self, table=table)
        return cells.flip() if flipped else cells

    def with_states(self, parents: Int64Array) -> Cells:
        """The same cells when state ``s`` of the near node has the slot of ``parents[s]``."""
        return replace(self, near_slots=self.near_slots[parents])

    def restricted(self, near: Int64Array | None, far: Int64Array | None) -> Cells:
        """The cells when some states of the ends are left alone (None: all of them), without
        slots that none of these has."""
        near_slots, near_used = _used(self.near_slots, near, self.near_count)
        far_slots, far_used = _used(self.far_slots, far, self.far_count)
        if near_used.size == self.near_count and far_used.size == self.far_count:
            return replace(self, near_slots=near_slots, far_slots=far_slots)
        return Cells(
            near_slots,
            far_slots,
            near_used.size,
            far_used.size,
            self.table.take(np.add.outer(near_used * self.far_count, far_used).ravel()),
            self.near_given[near_used],
            self.far_given[far_used],
            self.inside,
        )

    @property
    def rest(self) -> Float64Array:
        """float64[rows, W]: what bounds add to a point's cost, beside the least of all."""
        rest: Float64Array = -(self.near_given[:, None] + self.far_given + self.inside)
        return rest.reshape(self.near_count * self.far_count, self.inside.size)


def _used(
    slots: Int64Array, states: Int64Array | None, count: int
) -> tuple[Int64Array, Int64Array]:
    """The slots of some states, numbered anew, and which of all these are."""
    if states is None:
        return slots, np.arange(count)
    number, first = _numbered(slots[states], count)
    return number, slots[states[first]]


def joint_keys(columns: list[Int64Array], states: int) -> tuple[Int64Array, Int64Array]:
    """Number the distinct combinations of slots that states have on several edges together.

    Args:
        columns: for each edge int64[states], the slot of each state.
        states: how many states there are (``columns`` may be empty: one combination then).

    Returns:
        int64[states], each state's combination, and int64[combinations], a state that has it.
        Combinations are numbered in lexicographic order of their slots.
    """
    key = np.zeros(states, dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for column in columns:
        count = int(column.max()) + 1
        if first.size * count <= _FEW_KEYS:
            key, first = _numbered(key * count + column, first.size * count)
        else:
            _, first, key = np.unique(key * count + column, return_index=True, return_inverse=True)
    return key, first


@numba.njit(cache=True, nogil=True)
def _numbered(keys: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """The number of every key among those that occur, and where each occurs first."""
    place = np.full(count, -1, np.int64)
    for state in range(keys.size):
        if place[keys[state]] < 0:
            place[keys[state]] = state
    first = np.empty(min(count, keys.size), np.int64)
    size = 0
    for key in range(count):
        if place[key] >= 0:
            first[size] = place[key]
            place[key] = size
            size += 1
    number = np.empty(keys.size, np.int64)
    for state in range(keys.size):
        number[state] = place[keys[state]]
    return number, first[:size].copy()


def multiply(
    left: Table,
    right: Table,
    triples: tuple[Int64Array, Int64Array, Int64Array],
    count: int,
    derivations: Derivations,
) -> Table:
    """Sums of products of frontiers: equations 4 to 7 of the paper are all of this form.

    Row ``o`` of the result is the union, over the triples (a, b, o), of row ``a`` of ``left``
    times row ``b`` of ``right``, reduced. Only survivors get identities.

    Args:
        triples: int64[T] each: the left row, the right row, and the row of the result.
        count: how many rows the result has.
    """
    left_rows, right_rows, rows = triples
    if left.is_single and right.is_single and rows.size == count and (np.diff(rows) == 1).all():
        # A sum for each row, and nothing to choose from.
        return Table.single(
            left.memory[left_rows] + right.memory[right_rows],
            left.time[left_rows] + right.time[right_rows],
            derivations.pairs(left.identity[left_rows], right.identity[right_rows]),
        )
    filled = (left.sizes[left_rows] > 0) & (right.sizes[right_rows] > 0)
    if not filled.all():
        left_rows, right_rows, rows = left_rows[filled], right_rows[filled], rows[filled]
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        left_rows, right_rows, rows = left_rows[order], right_rows[order], rows[order]
    found, lefts, rights = merged_products(
        (left.memory, left.time),
        (right.memory, right.time),
        (
            left.offsets[left_rows],
            left.sizes[left_rows],
            right.offsets[right_rows],
            right.sizes[right_rows],
            rows,
        ),
    )
    return Table(
        row_offsets(found, count),
        left.memory[lefts] + right.memory[rights],
        left.time[lefts] + right.time[rights],
        derivations.pairs(left.identity[lefts], right.identity[rights]),
    )
