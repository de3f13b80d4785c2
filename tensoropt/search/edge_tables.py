"""What an edge costs for every pair of slots at its ends (equation 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import CostModel
from tensoropt.parallel.assignments import SlotCodes, decode, encode
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.parallel.sparse import known_shape
from tensoropt.search.kept import KeptOnEdge
from tensoropt.search.operator_costs import moved_memory_bytes
from tensoropt.search.problem import Edge
from tensoropt.search.slices import Slices, slices_times

__all__ = ["EdgeTables", "Use", "slot_numbers"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Use:
    """What an edge carries, beside the slots at its ends.

    Attributes:
        shape: of the tensor.
        itemsize: of one of its elements, in bytes.
        carries: whether its gradient comes back.
        role: of the tensor, see `tensoropt.search.kept`.
        read_backward: whether the backward pass reads the tensor as it lies at the reader.
        slices: of the gradient, where it is sparse.
        ways: what may be kept of the tensor, where that has a bearing on the edge.
        reader_ways: what may be kept of the reader's outputs, where that has.
    """

    shape: tuple[int, ...]
    itemsize: int
    carries: bool
    role: str = ""
    read_backward: bool = False
    slices: Slices | None = None
    ways: tuple[str, ...] = ("both",)
    reader_ways: tuple[str, ...] = ("both",)


class EdgeTables:
    """Works out tables of edges; what a tensor's reshardings take, once for every kind of tensor.

    Args:
        mesh: the devices.
        cost: the prices.
    """

    def __init__(self, mesh: Mesh, cost: CostModel) -> None:
        self._mesh = mesh
        self._cost = cost
        self._distances = Distances(mesh, cost.collective_nanoseconds)

    def edge(
        self, use: Use, made: SlotCodes, read: SlotCodes, source: int, target: int
    ) -> Edge | None:
        memory, time = self.tables(use, made, read)
        if not time.any() and not memory.any():
            return None
        here, there = slot_numbers(made, use.ways), slot_numbers(read, use.reader_ways)
        if source < target:
            return Edge(source, target, here, there, memory, time)
        return Edge(target, source, there, here, memory.T, time.T)

    def tables(self, use: Use, made: SlotCodes, read: SlotCodes) -> tuple[Int64Array, Int64Array]:
        """Memory and time of an edge: slots times what is kept, at both ends (`_numbers`).

        Equation 2: resharding forward, and of the gradient backward where there is one; and what
        is kept of the tensor as it is read, or resharding once more.
        """
        forward = self._times(use, made.forward, read.forward)
        time = forward
        if use.carries:
            time = time + self._gradient_times(use, read.gradient, made.gradient).T
        edge = KeptOnEdge(
            moved=made.forward[:, None] != read.forward[None, :],
            before=self._bytes(use, made.forward)[:, None],
            after=self._bytes(use, read.forward)[None, :],
            forward=forward,
            back=self._times(use, read.forward, made.forward).T if "after" in use.ways else forward,
            role=use.role,
        )
        cells = [
            [edge.costs(way, use.read_backward, again == "recomputed") for again in distinct]
            for distinct in [_distinct(use.reader_ways)]
            for way in _distinct(use.ways)
        ]
        memory = np.block([[kept for kept, _ in row] for row in cells])
        times = np.block([[time + more for _, more in row] for row in cells])
        return memory.astype(np.int64), times.astype(np.int64)

    def _bytes(self, use: Use, codes: Int64Array) -> Int64Array:
        """What a tensor takes that is kept in each layout, on one device."""
        rank = len(use.shape)
        if -1 in use.shape or not (use.read_backward or "recomputed" in use.reader_ways):
            return np.zeros(codes.size, np.int64)
        layouts = [decode(code, rank, self._mesh) for code in codes.tolist()]
        return np.array(
            [
                moved_memory_bytes(layout, use.shape, use.itemsize, self._mesh, self._cost)
                for layout in layouts
            ],
            np.int64,
        )

    def _gradient_times(self, use: Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        if use.slices is None:
            return self._times(use, sources, targets)
        here, there = (
            [decode(code, len(use.shape), self._mesh) for code in codes.tolist()]
            for codes in (sources, targets)
        )
        return slices_times(use.shape, use.itemsize, use.slices, here, there, self._times_of)

    def _times_of(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> Int64Array:
        use = Use(shape, itemsize, carries=False)
        here, there = (np.array([encode(x) for x in some], np.int64) for some in (sources, targets))
        return self._times(use, here, there)

    def _times(self, use: Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        one, rows = np.unique(sources, return_inverse=True)
        other, columns = np.unique(targets, return_inverse=True)
        if one.size == 1 and np.array_equal(one, other):
            return np.zeros((sources.size, targets.size), np.int64)
        table = self._distances.between(known_shape(use.shape), use.itemsize, one, other)
        found: Int64Array = table[np.ix_(rows.ravel(), columns.ravel())]
        return found


def _distinct(ways: tuple[str, ...]) -> tuple[str, ...]:
    """What an end's slots are multiplied by: what is kept, where that has a bearing at all."""
    return tuple(dict.fromkeys(ways))


def slot_numbers(slots: SlotCodes, ways: tuple[str, ...]) -> Int64Array:
    """The slot of every configuration, numbered by what is kept first."""
    distinct = _distinct(ways)
    base = slots.of_option[: slots.of_option.size // len(ways)]
    places = [distinct.index(way) * slots.forward.size for way in ways]
    return np.concatenate([base + place for place in places])
