"""The cheapest resharding between all pairs of many layouts, for the search's tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.errors import LayoutError
from tensoropt.parallel.assignments import (
    code_partial,
    code_states,
    decode,
    partial_reducers,
    renumbered,
)
from tensoropt.parallel.layout import REDUCERS
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.planner import Price, PricedGraph, price_layouts
from tensoropt.parallel.resharding.space import LayoutSpace

__all__ = ["Distances"]


_FAR = 2**61
_MOST_EXCHANGES = 720  # of axes; more are not looked for


class Distances:
    """Times of the cheapest reshardings on one mesh, each kind of tensor worked out once.

    The paths are those of `tensoropt.parallel.resharding.planner.plan_reshard`. They depend on a
    tensor's bytes and on the pieces that its dimensions can fall into, in any order: tensors that
    have both in common are of one kind. Paths are found from all sources together, and once for
    sources that an exchange of dimensions or of mesh axes makes of each other: of dimensions that
    divide alike, of axes for which every step of the tensor has the same price. Such an exchange
    maps the graph of layouts onto itself, prices included, so it maps cheapest paths onto cheapest
    paths.

    Args:
        mesh: the devices.
        price: what a step costs.
        ordered: whether a price may depend on the order of axes.
    """

    def __init__(self, mesh: Mesh, price: Price, *, ordered: bool = True) -> None:
        self._mesh = mesh
        self._price = price
        self._ordered = ordered
        self._prices: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._known: dict[tuple[tuple[int, ...], int, tuple[str, ...]], _Lengths] = {}
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[Int64Array, list[_Part]]] = {}

    def between(
        self, shape: tuple[int, ...], itemsize: int, sources: Int64Array, targets: Int64Array
    ) -> Int64Array:
        """Nanoseconds of the cheapest resharding of every pair: [sources, targets].

        Args:
            shape: the whole tensor's.
            itemsize: bytes of one element.
            sources, targets: layouts as `tensoropt.parallel.assignments` numbers them.

        Raises:
            LayoutError: if a layout does not fit the shape.
            OptionError: if a price is not a whole number of at least 1.
        """
        divide = [gcd(extent, self._mesh.size) for extent in shape]
        kept = sorted((dim for dim, n in enumerate(divide) if n > 1), key=lambda d: -divide[d])
        kind = tuple(divide[dim] for dim in kept)
        bytes_ = prod(shape) * itemsize // prod(kind)
        wanted = [-1] * len(shape)
        for place, dim in enumerate(kept):
            wanted[dim] = place
        here, there = (self._of_kind(codes, shape, tuple(wanted)) for codes in (sources, targets))
        result = np.zeros((sources.size, targets.size), dtype=np.int64)
        for one, other in itertools.product(here, there):
            reducers = tuple(sorted({*one.reducers, *other.reducers}))
            self._lengths(kind, bytes_, reducers).fill(result, one, other)
        return result

    def _of_kind(
        self, codes: Int64Array, shape: tuple[int, ...], wanted: tuple[int, ...]
    ) -> list[_Part]:
        """Layouts by reducer, with their dimensions renumbered; done once for an array of them."""
        key = id(codes), wanted
        if key in self._parts:
            return self._parts[key][1]
        renamed = renumbered(codes, len(self._mesh.axes), wanted)
        if (renamed < 0).any():
            layout = decode(int(codes[int(renamed.argmin())]), len(shape), self._mesh)
            unfit = [extent for extent, place in zip(shape, wanted, strict=True) if place < 0]
            raise LayoutError(
                f"a dimension is split only where it divides evenly. Got layout {layout}, which "
                f"does not fit the shape {shape}: {unfit} cannot be split."
            )
        reducers = partial_reducers(renamed, len(self._mesh.axes))
        parts = []
        for number in np.unique(reducers).tolist():
            places = np.flatnonzero(reducers == number)
            name = () if number < 0 else (REDUCERS[number],)
            parts.append(_Part(name, places.astype(np.uint64), renamed[places]))
        self._parts[key] = codes, parts
        return parts

    def _lengths(
        self, shape: tuple[int, ...], itemsize: int, reducers: tuple[str, ...]
    ) -> _Lengths:
        key = shape, itemsize, reducers
        if key not in self._known:
            graph = price_layouts(
                self._mesh.axes, shape, itemsize, reducers, self._remembered, self._ordered
            )
            self._known[key] = _Lengths(graph)
        return self._known[key]

    def _remembered(self, kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        key = kind, axes, bytes_
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._price(kind, axes, bytes_)
        return price


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Those of some layouts whose partial axes have one reducer, or that have none.

    Attributes:
        reducers: this reducer, or nothing.
        places: uint64[P], where they are among all (kernels ask of signed numbers whether they
            count from the end).
        codes: int64[P], their numbers.
        nodes: where they are in a space, as far as it was asked for.
    """

    reducers: tuple[str, ...]
    places: npt.NDArray[np.uint64]
    codes: Int64Array
    nodes: dict[LayoutSpace, Int64Array] = field(default_factory=dict)

    def nodes_in(self, space: LayoutSpace) -> Int64Array:
        """int64[P], the nodes of these layouts."""
        if space not in self.nodes:
            found = space.nodes_of(_digits(self.codes, space))
            if (found < 0).any():
                raise LayoutError("a layout has dimensions and axes that its tensor and mesh have.")
            self.nodes[space] = found
        return self.nodes[space]


@dataclass(slots=True, eq=False)
class _Lengths:
    """Path lengths in one priced graph from the nodes that were asked for.

    Attributes:
        graph: the layouts of one kind of tensor.
        moved: int64[exchanges, V], where an exchange takes every node.
        exchange: int64[V], the exchange that takes a node to the first of those alike.
        first: int64[V], that node.
        row: int64[V], where ``lengths`` has the paths from a node; -1 where it has not.
        lengths: int64[rows, V].
    """

    graph: PricedGraph
    moved: Int64Array = field(init=False)
    exchange: Int64Array = field(init=False)
    first: Int64Array = field(init=False)
    row: Int64Array = field(init=False)
    lengths: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        self.moved, self.exchange, self.first = _exchanges(
            graph.space, _like_axes(graph), graph.alike
        )
        self.row = np.full(self.first.size, -1, dtype=np.int64)
        self.lengths = np.zeros((0, self.first.size), dtype=np.int64)

    def fill(self, table: Int64Array, sources: _Part, targets: _Part) -> None:
        """Put the lengths of the shortest paths from sources to targets at their places."""
        starts, goals = self._nodes(sources), self._nodes(targets)
        graph = self.graph
        wanted = np.unique(self.first[starts])
        missing = wanted[self.row[wanted] < 0]
        if missing.size:
            ends = np.zeros(self.row.size + 1, dtype=np.int64)
            np.cumsum(np.bincount(graph.source, minlength=self.row.size), out=ends[1:])
            found = _from_all(ends, graph.target, graph.weight, missing)
            self.row[missing] = len(self.lengths) + np.arange(missing.size)
            self.lengths = np.concatenate([self.lengths, found])
        here = self.row[self.first[starts]], self.exchange[starts]
        places = sources.places, targets.places
        longest = _gather(self.lengths, *here, self.moved, goals, *places, table)
        if longest >= _FAR:
            raise LayoutError("no sequence of collectives leads from a source to a target.")

    def _nodes(self, part: _Part) -> Int64Array:
        """The nodes of layouts, which fit the shape."""
        space = self.graph.space
        nodes = part.nodes_in(space)
        unfit = nodes[~self.graph.fits[nodes]]
        if unfit.size:
            raise LayoutError(
                "a dimension is split only where it divides evenly. Got layout "
                f"{space.layout(int(unfit[0]))}, which does not fit the shape."
            )
        return nodes


@numba.njit(cache=True, nogil=True)
def _from_all(
    ends: Int64Array, target: Int64Array, weight: Int64Array, starts: Int64Array
) -> Int64Array:
    """int64[starts, nodes], path lengths by relaxing every edge until nothing changes.

    Few rounds suffice, as cheap paths have few steps; all starts share each look at an edge. The
    edges of a node are those from ``ends`` of it to ``ends`` of the next.
    """
    nodes, count = ends.size - 1, starts.size
    lengths = np.full((nodes, count), _FAR, dtype=np.int64)
    changed = np.zeros(nodes, dtype=np.bool_)
    for number in range(count):
        lengths[starts[number], number] = 0
        changed[starts[number]] = True
    going = True
    while going:
        going = False
        for tail in range(nodes):
            if not changed[tail]:
                continue
            changed[tail] = False
            here = lengths[tail]
            for edge in range(ends[tail], ends[tail + 1]):
                there, step = lengths[target[edge]], weight[edge]
                gained = np.int64(0)
                for number in range(count):  # without branches: many numbers at a time
                    shorter = min(here[number] + step, there[number])
                    gained |= shorter ^ there[number]
                    there[number] = shorter
                if gained != 0:
                    changed[target[edge]] = True
                    going = True
    return np.ascontiguousarray(lengths.T)


@numba.njit(cache=True, nogil=True)
def _gather(
    lengths: Int64Array,
    row: Int64Array,
    exchange: Int64Array,
    moved: Int64Array,
    goals: Int64Array,
    rows: npt.NDArray[np.uint64],
    columns: npt.NDArray[np.uint64],
    table: Int64Array,
) -> np.int64:
    """Lengths from sources, by their rows and exchanges, to goals into a table; the longest."""
    longest = np.int64(0)
    taken = np.empty((moved.shape[0], goals.size), dtype=np.uint32)  # to goals, by each exchange
    known = np.zeros(moved.shape[0], dtype=np.bool_)
    for start in range(rows.size):
        number = exchange[start]
        if not known[number]:
            known[number] = True
            for goal in range(goals.size):
                taken[number, goal] = moved[number, goals[goal]]
        here, way, into = lengths[row[start]], taken[number], table[rows[start]]
        for goal in range(goals.size):
            length = here[way[goal]]
            into[columns[goal]] = length
            longest = max(longest, length)
    return longest


def _digits(codes: Int64Array, space: LayoutSpace) -> Int64Array:
    """`LayoutSpace.digits` of layouts that have a number: a dimension's axes ascend in it."""
    axes = len(space.axes)
    states = code_states(codes, axes)
    unknown = 1 + space.rank * axes + len(space.reducers)
    partial = np.full(1 + max(code_partial(reducer) for reducer in REDUCERS), unknown)
    partial[0] = 0
    for number, reducer in enumerate(space.reducers):
        partial[code_partial(reducer)] = 1 + space.rank * axes + number
    split = (states > 0) & (states <= space.rank)
    digits = np.where(split, 1 + (states - 1) * axes, partial[states])
    for axis in range(axes):
        before = states[:, :axis] == states[:, axis : axis + 1]
        digits[:, axis] += before.sum(axis=1) * split[:, axis]
    return digits


@lru_cache(maxsize=64)
def _exchanges(
    space: LayoutSpace, like_axes: tuple[tuple[int, ...], ...], alike: tuple[tuple[int, ...], ...]
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Where exchanges of like axes and like dimensions take the nodes, and the first of those."""
    axes, rank = len(space.axes), space.rank
    ways = _orders(alike, rank)
    dims = np.array(ways, np.int64).reshape(len(ways), rank)  # a scalar has one way, and no column
    places = np.tile(np.arange(2 + rank * axes + len(space.reducers)), (len(dims), 1))
    for dim in range(rank):
        there = 1 + dims[:, dim : dim + 1] * axes
        places[:, 1 + dim * axes : 1 + (dim + 1) * axes] = there + np.arange(axes)
    images = places[:, space.digits]
    orders = _orders(like_axes, axes)
    table = np.concatenate([space.nodes_of(images[:, :, order]) for order in orders])
    exchange = table.argmin(axis=0)
    return table, exchange, table[exchange, np.arange(exchange.size)]


def _like_axes(graph: PricedGraph) -> tuple[tuple[int, ...], ...]:
    """The mesh axes in groups: exchanging two of a group changes no price of this tensor."""
    prices = graph.class_price
    groups: list[list[int]] = []
    for axis, size in enumerate(graph.space.axes):
        for group in groups:
            if graph.space.axes[group[0]] == size and np.array_equal(
                prices, prices[_exchanged_classes(graph.space, axis, group[0])]
            ):
                group.append(axis)
                break
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


@lru_cache(maxsize=256)
def _exchanged_classes(space: LayoutSpace, one: int, other: int) -> Int64Array:
    return space.exchanged_classes(one, other)


def _orders(groups: Sequence[tuple[int, ...]], count: int) -> list[list[int]]:
    """All orders of so many things that move each within its group."""
    total = 1
    for group in groups:
        for factor in range(2, len(group) + 1):
            total *= factor
    if total > _MOST_EXCHANGES:
        return [list(range(count))]
    orders = []
    for images in itertools.product(*(itertools.permutations(group) for group in groups)):
        order = list(range(count))
        for group, image in zip(groups, images, strict=True):
            for place, moved in zip(group, image, strict=True):
                order[place] = moved
        orders.append(order)
    return orders
