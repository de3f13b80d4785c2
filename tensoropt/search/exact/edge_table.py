"""An edge of the search graph: a frontier for each pair of slots.

It is made from a problem's edge, in which equal slots become one; or from two parallel edges, with
a slot for each combination of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.effort import LISTED_PRICE
from tensoropt.search.flat.flat_graph import Cells, FlatEdge
from tensoropt.search.flat.joint_slots import joint_keys, numbered
from tensoropt.search.like_subgraphs import Compute
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table, multiply

__all__ = ["EdgeTable", "End", "edge_table", "merge_parallel"]


Made = Callable[[str, list[Table], Sequence[Int64Array], Compute], Table]


class End(NamedTuple):
    """One end of an edge: the slot of each state, the number of slots, and the messages to the
    node; see `EdgeTable`."""

    slots: Int64Array
    size: int
    messages: Float64Array


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTable:
    """The frontiers of an edge, seen from one of its ends.

    Attributes:
        near_slots: int64[states of the near node], the slot of each.
        far_slots: int64[states of the far node].
        near_count, far_count: the number of slots; each is used by some state.
        table: row ``near * far_count + far`` is the frontier of that pair of slots.
        near_messages, far_messages: float64[slots, W], costs that the edge has passed to the nodes
            at its ends (`tensoropt.search.bounds.message_passing`), for W weights; W may be 0.
    """

    near_slots: Int64Array
    far_slots: Int64Array
    near_count: int
    far_count: int
    table: Table
    near_messages: Float64Array
    far_messages: Float64Array

    @classmethod
    def between(cls, near: End, far: End, table: Table) -> EdgeTable:
        """The edge between two ends."""
        return cls(near.slots, far.slots, near.size, far.size, table, near.messages, far.messages)

    @property
    def near(self) -> End:
        """The near end."""
        return End(self.near_slots, self.near_count, self.near_messages)

    @property
    def far(self) -> End:
        """The far end."""
        return End(self.far_slots, self.far_count, self.far_messages)

    def flip(self) -> EdgeTable:
        """The same edge seen from its other end."""
        return self.with_table(self.table, flipped=True)

    def with_table(self, table: Table, *, flipped: bool = False) -> EdgeTable:
        """The same slots with another table, seen from the other end if ``flipped``."""
        if flipped:
            return EdgeTable.between(self.far, self.near, table.turned(self.near_count))
        return self if table is self.table else EdgeTable.between(self.near, self.far, table)

    def restrict(self, near: Int64Array | None, far: Int64Array | None) -> EdgeTable:
        """The edge between some states of the nodes at its ends (None: all), without unused
        slots."""
        near_slots, near_used = _used(self.near_slots, near, self.near_count)
        far_slots, far_used = _used(self.far_slots, far, self.far_count)
        if near_used.size == self.near_count and far_used.size == self.far_count:
            return replace(self, near_slots=near_slots, far_slots=far_slots)
        return EdgeTable(
            near_slots,
            far_slots,
            near_used.size,
            far_used.size,
            self.table.take(np.add.outer(near_used * self.far_count, far_used).ravel()),
            self.near_messages[near_used],
            self.far_messages[far_used],
        )

    @property
    def rest(self) -> Float64Array:
        """float64[rows, W], which added to a point's cost bounds it, less the bound on every
        strategy."""
        rest: Float64Array = -(self.near_messages[:, None] + self.far_messages)
        return rest.reshape(self.near_count * self.far_count, rest.shape[2])


def _used(
    slots: Int64Array, states: Int64Array | None, count: int
) -> tuple[Int64Array, Int64Array]:
    """Return the new slots of some states, and the old number of each remaining slot."""
    if states is None:
        return slots, np.arange(count)
    number, first = numbered(slots[states], count)
    return number, slots[states[first]]


def edge_table(edge: FlatEdge, cells: Cells) -> EdgeTable:
    """Make an edge without unused slots, and with equal slots as one."""
    if cells.identity is not None or cells.offsets is not None:
        # Identities belong to the cells of their own slots alone.
        return EdgeTable(
            *edge.slots,
            cells.rows,
            cells.columns,
            cells.table,
            np.zeros((cells.rows, 0)),
            np.zeros((cells.columns, 0)),
        )
    ends = [(slots, *joint_keys([slots], slots.size)) for slots in edge.slots]
    near_used, far_used = (slots[example] for slots, _, example in ends)
    shape = cells.rows, cells.columns
    tables = [own.reshape(shape) for own in (cells.time, cells.memory) if own is not None]
    if (near_used.size, far_used.size) != shape:
        tables = [table[np.ix_(near_used, far_used)] for table in tables]
    first, sources = _equal_rows(tables)
    if first.size < sources.size:
        tables = [table[first] for table in tables]
    first, targets = _equal_rows([table.T for table in tables])
    if first.size < targets.size:
        tables = [table[:, first] for table in tables]
    time, memory = tables[0], tables[-1] if len(tables) > 1 else np.zeros_like(tables[0])
    near, far = time.shape
    return EdgeTable(
        sources[ends[0][1]],
        targets[ends[1][1]],
        near,
        far,
        Table.single(memory, time),
        np.zeros((near, 0)),
        np.zeros((far, 0)),
    )


def _equal_rows(tables: list[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """Return the first of each set of rows that are equal in all tables, and the set of each
    row."""
    numbers: dict[bytes, int] = {}
    both = np.concatenate(tables, axis=1)
    number = [numbers.setdefault(row.tobytes(), len(numbers)) for row in both]
    return np.unique(number, return_index=True)[1], np.array(number)


def merge_parallel(first: EdgeTable, second: EdgeTable, made: Made) -> EdgeTable:
    """Edge elimination (paper, equation 5): one edge between the pairs of slots that occur.

    Args:
        first, second: both edges, seen from the same node.
        made: `SearchGraph.made` of their graph.

    Raises:
        SearchSizeError: if there are too many pairs.
    """
    near, near_states = joint_keys([first.near_slots, second.near_slots], first.near_slots.size)
    far, far_states = joint_keys([first.far_slots, second.far_slots], first.far_slots.size)
    at_near = [edge.near_slots[near_states] for edge in (first, second)]
    at_far = [edge.far_slots[far_states] for edge in (first, second)]
    count = near_states.size * far_states.size

    def compute(tables: list[Table], names: BackPointers) -> Table:
        names.spend(LISTED_PRICE * count)  # before they are listed
        one, other = tables
        rows = [
            np.add.outer(near * edge.far_count, far).ravel()
            for edge, near, far in zip((first, second), at_near, at_far, strict=True)
        ]
        return multiply(one, other, (rows[0], rows[1], np.arange(count)), count, names)

    slots = [first.near_slots, first.far_slots, second.near_slots, second.far_slots]
    return EdgeTable(
        near,
        far,
        near_states.size,
        far_states.size,
        made("edge", [first.table, second.table], slots, compute),
        first.near_messages[at_near[0]] + second.near_messages[at_near[1]],
        first.far_messages[at_far[0]] + second.far_messages[at_far[1]],
    )
