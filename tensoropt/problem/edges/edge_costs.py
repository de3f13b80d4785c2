"""The costs of an edge for every pair of slots at its ends (TensorOpt, equation 2)."""

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

__all__ = ["EdgeCosts", "TensorOnEdge", "slot_numbers"]

_TimesOfSlots = tuple[Int64Array, Int64Array, Int64Array]
"""Times between distinct layouts, and for each slot of rows and columns the number of its
layout."""


@dataclass(frozen=True, slots=True)
class TensorOnEdge:
    """The tensor of an edge: all that its costs depend on besides the slots at its ends.

    Attributes:
        shape: its shape.
        itemsize: bytes of one element.
        has_gradient: whether its gradient is sent back.
        role: its role, see `tensoropt.problem.edges.tensor_reuse`.
        read_backward: whether the backward pass reads it in the layout at the reader.
        slices: the slices of its gradient if that is sparse.
        ways: the choices of kept copies (`KEPT`) of this tensor; "both" alone where the choice
            does not change the edge's costs.
        reader_ways: the choices of kept copies of the reader's outputs, in the same way.
        with_others: whether it is a share of an average over the devices
            (`Derivation.is_averaged`). If such a tensor is only reduced over devices, it shares a
            collective with others. Its price is the time that its bytes add.
        repeats: number of times that it is resharded in a step.
        is_weight: whether it is the value of a large variable, whose gathered copy takes memory.
    """

    shape: tuple[int, ...]
    itemsize: int
    has_gradient: bool
    role: str = ""
    read_backward: bool = False
    slices: Slices | None = None
    ways: tuple[str, ...] = ("both",)
    reader_ways: tuple[str, ...] = ("both",)
    with_others: bool = False
    repeats: int = 1
    is_weight: bool = False


class EdgeCosts:
    """Computes the costs of edges. Reshardings are priced once for every kind of tensor.

    Args:
        mesh: the devices.
        cost: the cost model.
    """

    def __init__(self, mesh: Mesh, cost: CostModel) -> None:
        self._mesh = mesh
        self._cost = cost
        self._distances = Distances(mesh, cost.collective_nanoseconds, ordered=False)
        self._tables: dict[Hashable, CostTable] = {}
        self._zeros: dict[tuple[int, ...], Int64Array] = {}
        self._zero = np.zeros(0, np.int64)

    def of(
        self,
        tensor: TensorOnEdge,
        producer: TensorSlots,
        reader: TensorSlots,
        ascending: bool = True,
    ) -> CostTable:
        """Return the memory and time of an edge, for each pair of `slot_numbers`.

        By equation 2 these are the times of resharding the tensor and, if it has one, its gradient,
        and the memory of the saved copy at the reader. Without a saved copy it is the time of
        resharding once more. A large weight that the backward pass does not read takes memory for
        its gathered copy.

        Args:
            tensor: the tensor.
            producer: its slots at the producer.
            reader: its slots at the reader.
            ascending: whether the rows of the tables are the producer's slots, not the reader's.
        """
        key = (
            tensor,
            ascending,
            producer.forward,
            producer.gradient,
            reader.forward,
            reader.gradient,
        )
        if key not in self._tables:
            if tensor.read_backward or "recomputed" in tensor.reader_ways:
                memory, time = self._saved_costs(tensor, producer, reader)
                if not ascending:
                    memory, time = memory.T, time.T
                memory, time = np.ascontiguousarray(memory), np.ascontiguousarray(time)
            else:
                time = self._resharding_times(tensor, producer, reader, ascending)
                memory = self._zeros_of(time.shape)
                if tensor.is_weight:
                    memory = self._gathered_memory(tensor, producer, reader, ascending)
            self._tables[key] = CostTable(
                memory, time * tensor.repeats if tensor.repeats > 1 else time
            )
        return self._tables[key]

    def _zeros_of(self, shape: tuple[int, ...]) -> Int64Array:
        """Return zeros of a shape. All shapes share one buffer."""
        if shape not in self._zeros:
            size = prod(shape)
            if self._zero.size < size:
                self._zero = np.zeros(size, np.int64)
                self._zero.flags.writeable = False
            self._zeros[shape] = self._zero[:size].reshape(shape)
        return self._zeros[shape]

    def _resharding_times(
        self, tensor: TensorOnEdge, producer: TensorSlots, reader: TensorSlots, ascending: bool
    ) -> Int64Array:
        """Return the nanoseconds of resharding the tensor, and its gradient backward."""
        forward = self._table(tensor, producer.forward, reader.forward, ascending, self._times)
        if not tensor.has_gradient:
            return _by_slot(forward)
        back = self._table(
            tensor, reader.gradient, producer.gradient, not ascending, self._gradient_times
        )
        return _sum(*forward, *back)

    def _table(
        self,
        tensor: TensorOnEdge,
        sources: LayoutCodes,
        targets: LayoutCodes,
        ascending: bool,
        times: Callable[[TensorOnEdge, Int64Array, Int64Array], Int64Array],
    ) -> _TimesOfSlots:
        """Return the times between distinct layouts, and the number of each slot's layout.

        Rows are the sources if ``ascending``, else the targets.
        """
        between = times(tensor, sources.distinct, targets.distinct)
        if ascending:
            return between, sources.which, targets.which
        return np.ascontiguousarray(between.T), targets.which, sources.which

    def _saved_costs(
        self, tensor: TensorOnEdge, producer: TensorSlots, reader: TensorSlots
    ) -> tuple[Int64Array, Int64Array]:
        """Return the memory and time of an edge whose tensor is saved, resharded again or
        recomputed for the backward pass."""
        forward = self._all_times(tensor, producer.forward, reader.forward)
        edge = SavedOnEdge(
            moved=producer.forward.codes[:, None] != reader.forward.codes[None, :],
            before=self._bytes(tensor, producer.forward.codes)[:, None],
            after=self._bytes(tensor, reader.forward.codes)[None, :],
            forward=forward,
            back=forward,
            role=tensor.role,
        )
        if "after" in tensor.ways:
            edge = replace(edge, back=self._all_times(tensor, reader.forward, producer.forward).T)
        time = self._resharding_times(tensor, producer, reader, ascending=True)
        # Rows of blocks are choices of the tensor, columns are choices of the reader.
        blocks = [
            [
                edge.costs(way, tensor.read_backward, reader_way == "recomputed")
                for reader_way in _distinct(tensor.reader_ways)
            ]
            for way in _distinct(tensor.ways)
        ]
        memory = np.block([[kept for kept, _ in row] for row in blocks])
        times = np.block([[time + added for _, added in row] for row in blocks])
        return memory.astype(np.int64, copy=False), times.astype(np.int64, copy=False)

    def _all_times(
        self, tensor: TensorOnEdge, sources: LayoutCodes, targets: LayoutCodes
    ) -> Int64Array:
        """Return the nanoseconds of resharding a tensor from each layout to each layout."""
        return _by_slot(self._table(tensor, sources, targets, True, self._times))

    def _gathered_memory(
        self, tensor: TensorOnEdge, producer: TensorSlots, reader: TensorSlots, ascending: bool
    ) -> Int64Array:
        """Return the bytes that a weight takes at its reader beyond its stored piece."""
        stored, gathered = (self._sizes(tensor, each.forward.codes) for each in (producer, reader))
        added = np.maximum(gathered[None, :] - stored[:, None], 0)
        added = added if ascending else added.T
        distinct, which = np.unique(added, return_inverse=True)
        footprints = (Footprint(gathered_bytes=size) for size in distinct.tolist())
        kept = np.array([self._cost.operator_memory(each) for each in footprints], np.int64)
        memory: Int64Array = kept[which].reshape(added.shape)
        return memory

    def _bytes(self, tensor: TensorOnEdge, codes: Int64Array) -> Int64Array:
        """Return the bytes on one device of a saved tensor in each layout."""
        kind = "gathered_bytes" if tensor.is_weight else "moved_bytes"
        footprints = (Footprint(**{kind: size}) for size in self._sizes(tensor, codes).tolist())
        saved = (self._cost.operator_memory(each) for each in footprints)
        return np.fromiter(saved, np.int64, codes.size)

    def _sizes(self, tensor: TensorOnEdge, codes: Int64Array) -> Int64Array:
        """Return the bytes on one device of a tensor in each layout; 0 if its shape is not
        known."""
        if -1 in tensor.shape:
            return np.zeros(codes.size, np.int64)
        sizes = (
            layout.local_elements(tensor.shape, self._mesh) * tensor.itemsize
            for layout in self._layouts(tensor, codes)
        )
        return np.fromiter(sizes, np.int64, codes.size)

    def _layouts(self, tensor: TensorOnEdge, codes: Int64Array) -> list[Layout]:
        return [decode(code, len(tensor.shape), self._mesh) for code in codes.tolist()]

    def _gradient_times(
        self, tensor: TensorOnEdge, sources: Int64Array, targets: Int64Array
    ) -> Int64Array:
        """Return the nanoseconds of resharding the gradient from the reader to the producer."""
        if tensor.slices is None:
            return self._times(tensor, sources, targets)
        layouts = self._layouts(tensor, sources), self._layouts(tensor, targets)
        return slices_times(
            tensor.shape, tensor.itemsize, tensor.slices, *layouts, self._times_between, self._mesh
        )

    def _times_between(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> Int64Array:
        codes = (np.array([encode(layout) for layout in layouts]) for layouts in (sources, targets))
        return self._distances.between(known_shape(shape), itemsize, *codes)

    def _times(self, tensor: TensorOnEdge, sources: Int64Array, targets: Int64Array) -> Int64Array:
        if sources.size == 1 and np.array_equal(sources, targets):
            return np.zeros((1, 1), np.int64)
        shape = known_shape(tensor.shape)
        times = self._distances.between(shape, tensor.itemsize, sources, targets)
        if not tensor.with_others:
            return times
        twice = self._distances.between(shape, 2 * tensor.itemsize, sources, targets)
        is_reduction = only_added_up(sources, targets, len(self._mesh.axes))
        return np.where(is_reduction, np.maximum(twice - times, 0), times)


def _by_slot(table: _TimesOfSlots) -> Int64Array:
    """Return the times between slots, from those between distinct layouts."""
    times, rows, columns = table
    between_slots: Int64Array = times[np.ix_(rows, columns)]
    return between_slots


@numba.njit(cache=True, nogil=True)
def _sum(
    one: Int64Array,
    one_rows: Int64Array,
    one_columns: Int64Array,
    other: Int64Array,
    other_rows: Int64Array,
    other_columns: Int64Array,
) -> Int64Array:
    """Return the sum of the times of two reshardings, for each pair of slots."""
    total = np.empty((one_rows.size, one_columns.size), dtype=np.int64)
    for row in range(one_rows.size):
        first, second, total_row = one[one_rows[row]], other[other_rows[row]], total[row]
        for column in range(total_row.size):
            total_row[column] = first[one_columns[column]] + second[other_columns[column]]
    return total


def _distinct(ways: tuple[str, ...]) -> tuple[str, ...]:
    """Return the choices of kept copies without duplicates."""
    return tuple(dict.fromkeys(ways))


def slot_numbers(slots: TensorSlots, ways: tuple[str, ...]) -> Int64Array:
    """Return the slot of every configuration, numbered by kept copies first, then by layouts."""
    distinct = _distinct(ways)
    of_option = slots.of_option.slots
    base = of_option[: of_option.size // len(ways)]
    offsets = [distinct.index(way) * slots.forward.codes.size for way in ways]
    return np.concatenate([base + offset for offset in offsets])
