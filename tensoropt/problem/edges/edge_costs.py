"""What an edge costs for every pair of slots at its ends (equation 2)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.parallel.assignments import decode, encode, only_added_up
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.parallel.sparse import known_shape
from tensoropt.problem.edges.slots import LayoutCodes, TensorSlots
from tensoropt.problem.edges.sparse_gradients import Slices, slices_times
from tensoropt.problem.edges.tensor_reuse import SavedOnEdge
from tensoropt.problem.model import CostTable

__all__ = ["EdgeCosts", "Use", "slot_numbers"]

_Table = tuple[Int64Array, Int64Array, Int64Array]


@dataclass(frozen=True, slots=True)
class Use:
    """What an edge carries, beside the slots at its ends.

    Attributes:
        shape: of the tensor.
        itemsize: of one of its elements, in bytes.
        carries: whether its gradient comes back.
        role: of the tensor, see `tensoropt.problem.edges.tensor_reuse`.
        read_backward: whether the backward pass reads the tensor in the layout at the reader.
        slices: of the gradient, where it is sparse.
        ways: what may be saved of the tensor, where it matters to the edge.
        reader_ways: what may be saved of the reader's outputs, where it matters.
        with_others: whether the tensor, where it is only added up over devices, travels with others
            (`Derivation.is_averaged`): it is priced by what its bytes add to theirs.
        repeats: how often in a step it is resharded.
        is_weight: whether it is a variable's value, and large enough to count where it is gathered.
    """

    shape: tuple[int, ...]
    itemsize: int
    carries: bool
    role: str = ""
    read_backward: bool = False
    slices: Slices | None = None
    ways: tuple[str, ...] = ("both",)
    reader_ways: tuple[str, ...] = ("both",)
    with_others: bool = False
    repeats: int = 1
    is_weight: bool = False


class EdgeCosts:
    """Costs of edges; reshardings are priced once for every kind of tensor.

    Args:
        mesh: the devices.
        cost: the prices.
    """

    def __init__(self, mesh: Mesh, cost: CostModel) -> None:
        self._mesh = mesh
        self._cost = cost
        self._distances = Distances(mesh, cost.collective_nanoseconds, ordered=False)
        self._known: dict[Hashable, CostTable] = {}
        self._zeros: dict[tuple[int, ...], Int64Array] = {}
        self._zero = np.zeros(0, np.int64)

    def of(
        self, use: Use, made: TensorSlots, read: TensorSlots, ascending: bool = True
    ) -> CostTable:
        """Memory and time of an edge, by slots times what is saved at both ends (`slot_numbers`).

        Equation 2: resharding forward, and of the gradient backward where there is one; and the
        memory of the copy that is read, if it is saved, or else resharding once more. Of a
        variable that the backward pass does not read, what is read of it counts, too.

        Args:
            use: what the edge carries.
            made: slots of the tensor at its producer.
            read: slots at its reader.
            ascending: whether rows of the tables are the producer's slots, or the reader's.
        """
        key = use, ascending, made.forward, made.gradient, read.forward, read.gradient
        if key not in self._known:
            if use.read_backward or "recomputed" in use.reader_ways:
                memory, time = self._kept(use, made, read)
                if not ascending:
                    memory, time = memory.T, time.T
                memory, time = np.ascontiguousarray(memory), np.ascontiguousarray(time)
            else:
                time = self._moved(use, made, read, ascending)
                memory = self._nothing(time.shape)
                if use.is_weight:
                    memory = self._gathered(use, made, read, ascending)
            self._known[key] = CostTable(memory, time * use.repeats if use.repeats > 1 else time)
        return self._known[key]

    def _nothing(self, shape: tuple[int, ...]) -> Int64Array:
        """Zeros of a shape; all shapes share one buffer."""
        if shape not in self._zeros:
            size = prod(shape)
            if self._zero.size < size:
                self._zero = np.zeros(size, np.int64)
                self._zero.flags.writeable = False
            self._zeros[shape] = self._zero[:size].reshape(shape)
        return self._zeros[shape]

    def _moved(self, use: Use, made: TensorSlots, read: TensorSlots, ascending: bool) -> Int64Array:
        """Nanoseconds of resharding forward and of the gradient backward."""
        forward = self._table(use, made.forward, read.forward, ascending, self._times)
        if not use.carries:
            return _spread(forward)
        back = self._table(use, read.gradient, made.gradient, not ascending, self._gradient)
        return _sum(*forward, *back)

    def _table(
        self,
        use: Use,
        sources: LayoutCodes,
        targets: LayoutCodes,
        ascending: bool,
        times: Callable[[Use, Int64Array, Int64Array], Int64Array],
    ) -> _Table:
        """Times of a resharding between the distinct layouts, and which of them each slot has.

        Rows are sources, or where not ``ascending`` targets.
        """
        found = times(use, sources.distinct, targets.distinct)
        if ascending:
            return found, sources.which, targets.which
        return np.ascontiguousarray(found.T), targets.which, sources.which

    def _kept(
        self, use: Use, made: TensorSlots, read: TensorSlots
    ) -> tuple[Int64Array, Int64Array]:
        """Memory and time of an edge whose tensor the backward pass reads: it is saved, or it is
        resharded or recomputed once more."""
        forward = self._all_times(use, made.forward, read.forward)
        edge = SavedOnEdge(
            moved=made.forward.codes[:, None] != read.forward.codes[None, :],
            before=self._bytes(use, made.forward.codes)[:, None],
            after=self._bytes(use, read.forward.codes)[None, :],
            forward=forward,
            back=forward,
            role=use.role,
        )
        if "after" in use.ways:
            edge = replace(edge, back=self._all_times(use, read.forward, made.forward).T)
        time = self._moved(use, made, read, ascending=True)
        cells = [
            [edge.costs(way, use.read_backward, again == "recomputed") for again in distinct]
            for distinct in [_distinct(use.reader_ways)]
            for way in _distinct(use.ways)
        ]
        memory = np.block([[kept for kept, _ in row] for row in cells])
        times = np.block([[time + more for _, more in row] for row in cells])
        return memory.astype(np.int64, copy=False), times.astype(np.int64, copy=False)

    def _all_times(self, use: Use, sources: LayoutCodes, targets: LayoutCodes) -> Int64Array:
        """Nanoseconds of resharding a tensor from each layout to each."""
        return _spread(self._table(use, sources, targets, True, self._times))

    def _gathered(
        self, use: Use, made: TensorSlots, read: TensorSlots, ascending: bool
    ) -> Int64Array:
        """What a variable takes where it is read, beyond what is stored of it."""
        here, there = (self._sizes(use, each.forward.codes) for each in (made, read))
        more = np.maximum(there[None, :] - here[:, None], 0)
        different, which = np.unique(more if ascending else more.T, return_inverse=True)
        counted = (Footprint(gathered_bytes=size) for size in different.tolist())
        taken = np.array([self._cost.operator_memory(each).kept for each in counted], np.int64)
        found: Int64Array = taken[which].reshape((more if ascending else more.T).shape)
        return found

    def _bytes(self, use: Use, codes: Int64Array) -> Int64Array:
        """What a tensor takes that is saved in each layout, on one device."""
        kind = "gathered_bytes" if use.is_weight else "moved_bytes"
        counted = (Footprint(**{kind: size}) for size in self._sizes(use, codes).tolist())
        saved = (self._cost.operator_memory(each).kept for each in counted)
        return np.fromiter(saved, np.int64, codes.size)

    def _sizes(self, use: Use, codes: Int64Array) -> Int64Array:
        """Bytes of a tensor in each layout, on one device; 0 where its shape is not known."""
        if -1 in use.shape:
            return np.zeros(codes.size, np.int64)
        sizes = (
            layout.local_elements(use.shape, self._mesh) * use.itemsize
            for layout in self._layouts(use, codes)
        )
        return np.fromiter(sizes, np.int64, codes.size)

    def _layouts(self, use: Use, codes: Int64Array) -> list[Layout]:
        return [decode(code, len(use.shape), self._mesh) for code in codes.tolist()]

    def _gradient(self, use: Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        """Nanoseconds of resharding a tensor's gradient from the reader to the producer."""
        if use.slices is None:
            return self._times(use, sources, targets)
        here, there = self._layouts(use, sources), self._layouts(use, targets)
        return slices_times(use.shape, use.itemsize, use.slices, here, there, self._times_of)

    def _times_of(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> Int64Array:
        codes = (np.array([encode(layout) for layout in some]) for some in (sources, targets))
        return self._distances.between(known_shape(shape), itemsize, *codes)

    def _times(self, use: Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        if sources.size == 1 and np.array_equal(sources, targets):
            return np.zeros((1, 1), np.int64)
        shape = known_shape(use.shape)
        times = self._distances.between(shape, use.itemsize, sources, targets)
        if not use.with_others:
            return times
        twice = self._distances.between(shape, 2 * use.itemsize, sources, targets)
        added_up = only_added_up(sources, targets, len(self._mesh.axes))
        return np.where(added_up, np.maximum(twice - times, 0), times)


def _spread(table: _Table) -> Int64Array:
    """The times between slots."""
    times, rows, columns = table
    found: Int64Array = times[np.ix_(rows, columns)]
    return found


@numba.njit(cache=True, nogil=True)
def _sum(
    one: Int64Array,
    one_rows: Int64Array,
    one_columns: Int64Array,
    other: Int64Array,
    other_rows: Int64Array,
    other_columns: Int64Array,
) -> Int64Array:
    """The times of two reshardings together, between slots."""
    found = np.empty((one_rows.size, one_columns.size), dtype=np.int64)
    for row in range(one_rows.size):
        first, second, into = one[one_rows[row]], other[other_rows[row]], found[row]
        for column in range(into.size):
            into[column] = first[one_columns[column]] + second[other_columns[column]]
    return found


def _distinct(ways: tuple[str, ...]) -> tuple[str, ...]:
    """The choices of what is saved that slots of an edge differ in."""
    return tuple(dict.fromkeys(ways))


def slot_numbers(slots: TensorSlots, ways: tuple[str, ...]) -> Int64Array:
    """The slot of every configuration; numbers go by what is saved first, then by layouts."""
    distinct = _distinct(ways)
    of_option = slots.of_option.slots
    base = of_option[: of_option.size // len(ways)]
    places = [distinct.index(way) * slots.forward.codes.size for way in ways]
    return np.concatenate([base + place for place in places])
