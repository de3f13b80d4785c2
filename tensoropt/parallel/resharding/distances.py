"""The cheapest resharding between all pairs of many layouts, for the search's tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.errors import LayoutError
from tensoropt.parallel.assignments import encode, partial_reducers
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.planner import Price, PricedGraph, priced_graph
from tensoropt.parallel.resharding.space import LayoutSpace

__all__ = ["Distances"]

Int64Array = npt.NDArray[np.int64]

_FAR = 2**61
_MOST_EXCHANGES = 720  # of axes; more are not looked for


class Distances:
    """Times of the cheapest reshardings on one mesh, each kind of tensor worked out once.

    The paths are those of `tensoropt.parallel.resharding.planner.plan_reshard`. They are found
    from all sources together, and once for sources that an exchange of dimensions or of mesh axes
    makes of each other: of dimensions that divide alike, of axes for which every step of the
    tensor has the same price. Such an exchange maps the graph of layouts onto itself, prices
    included, so it maps cheapest paths onto cheapest paths.

    Args:
        mesh: the devices.
        price: what a step costs.
    """

    def __init__(self, mesh: Mesh, price: Price) -> None:
        self._mesh = mesh
        self._price = price
        self._known: dict[tuple[tuple[int, ...], int, tuple[str, ...]], _Lengths] = {}

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
        result = np.zeros((sources.size, targets.size), dtype=np.int64)
        axes = len(self._mesh.axes)
        for (one, rows), (other, columns) in itertools.product(
            _by_reducer(sources, axes), _by_reducer(targets, axes)
        ):
            lengths = self._lengths(shape, itemsize, tuple(sorted({*one, *other})))
            result[np.ix_(rows, columns)] = lengths.between(sources[rows], targets[columns])
        return result

    def _lengths(
        self, shape: tuple[int, ...], itemsize: int, reducers: tuple[str, ...]
    ) -> _Lengths:
        key = shape, itemsize, reducers
        if key not in self._known:
            graph = priced_graph(self._mesh.axes, shape, itemsize, reducers, self._price)
            self._known[key] = _Lengths(graph)
        return self._known[key]


def _by_reducer(codes: Int64Array, axes: int) -> list[tuple[tuple[str, ...], Int64Array]]:
    """Positions of the layouts by the reducer of their partial axes, none for none."""
    reducers = partial_reducers(codes, axes)
    return [
        (() if number < 0 else (REDUCERS[number],), np.flatnonzero(reducers == number))
        for number in np.unique(reducers).tolist()
    ]


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

    def between(self, sources: Int64Array, targets: Int64Array) -> Int64Array:
        """int64[sources, targets], the lengths of the shortest paths."""
        starts, goals = self._nodes(sources), self._nodes(targets)
        graph = self.graph
        wanted = np.unique(self.first[starts])
        missing = wanted[self.row[wanted] < 0]
        if missing.size:
            found = _from_all(graph.source, graph.target, graph.weight, missing, self.row.size)
            self.row[missing] = len(self.lengths) + np.arange(missing.size)
            self.lengths = np.concatenate([self.lengths, found])
        result = _gather(
            self.lengths, self.row[self.first[starts]], self.moved, self.exchange[starts], goals
        )
        if result.max(initial=0) >= _FAR:
            raise LayoutError("no sequence of collectives leads from a source to a target.")
        return result

    def _nodes(self, codes: Int64Array) -> Int64Array:
        """The nodes of layouts that have a number."""
        nodes = _places(self.graph.space).nodes(codes)
        unfit = nodes[~self.graph.fits[nodes]]
        if unfit.size:
            raise LayoutError(
                "a dimension is split only where it divides evenly. Got layout "
                f"{self.graph.space.layout(int(unfit[0]))}, which does not fit the shape."
            )
        return nodes


@numba.njit(cache=True, nogil=True)
def _from_all(
    source: Int64Array, target: Int64Array, weight: Int64Array, starts: Int64Array, nodes: int
) -> Int64Array:
    """int64[starts, nodes], path lengths by relaxing every edge until nothing changes.

    Few rounds suffice, as cheap paths have few steps; all starts share each look at an edge.
    """
    count = starts.size
    lengths = np.full((nodes, count), _FAR, dtype=np.int64)
    for number in range(count):
        lengths[starts[number], number] = 0
    changed = np.ones(nodes, dtype=np.bool_)
    going = True
    while going:
        going = False
        now = changed.copy()
        changed[:] = False
        for edge in range(source.size):
            tail = source[edge]
            if not now[tail]:
                continue
            head, step = target[edge], weight[edge]
            better = False
            for number in range(count):
                length = lengths[tail, number] + step
                if length < lengths[head, number]:
                    lengths[head, number] = length
                    better = True
            if better:
                changed[head] = True
                going = True
    return np.ascontiguousarray(lengths.T)


@numba.njit(cache=True, nogil=True)
def _gather(
    lengths: Int64Array,
    rows: Int64Array,
    moved: Int64Array,
    exchange: Int64Array,
    goals: Int64Array,
) -> Int64Array:
    result = np.empty((rows.size, goals.size), dtype=np.int64)
    for start in range(rows.size):
        row, way = lengths[rows[start]], moved[exchange[start]]
        for goal in range(goals.size):
            result[start, goal] = row[way[goals[goal]]]
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """What each axis does in every layout of a space.

    Attributes:
        digits: int64[V, axes]: nothing, its place on a dimension, or partial.
        codes: int64[C], the layouts that have a number, ascending.
        of_code: int64[C], their nodes.
    """

    digits: Int64Array
    codes: Int64Array
    of_code: Int64Array

    def nodes(self, codes: Int64Array) -> Int64Array:
        """The node of every layout of ``codes``."""
        found = np.minimum(np.searchsorted(self.codes, codes), self.codes.size - 1)
        if (self.codes[found] != codes).any():
            raise LayoutError("a layout has dimensions and axes that its tensor and mesh have.")
        nodes: Int64Array = self.of_code[found]
        return nodes


@lru_cache(maxsize=32)
def _places(space: LayoutSpace) -> _Places:
    rank, axes = space.splits.shape[1], len(space.axes)
    digits = np.zeros((len(space.keys), axes), dtype=np.int64)
    codes, nodes = [], []
    for node, (dims, summed, reducer) in enumerate(space.keys):
        for dim, own in enumerate(dims):
            for position, axis in enumerate(own):
                digits[node, axis] = 1 + dim * axes + position
        for axis in summed:
            digits[node, axis] = 1 + rank * axes + REDUCERS.index(reducer)
        if all(list(own) == sorted(own) for own in dims):
            codes.append(encode(Layout(dims, summed, reducer)))
            nodes.append(node)
    order = np.argsort(codes)
    return _Places(digits, np.array(codes)[order], np.array(nodes)[order])


@lru_cache(maxsize=64)
def _exchanges(
    space: LayoutSpace, like_axes: tuple[tuple[int, ...], ...], alike: tuple[tuple[int, ...], ...]
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Where exchanges of like axes and like dimensions take the nodes, and the first of those."""
    digits, axes = _places(space).digits, len(space.axes)
    rank = space.splits.shape[1]
    base = 1 + rank * axes + len(REDUCERS)
    powers = base ** np.arange(axes, dtype=np.int64)
    keys = digits @ powers
    by_key = np.argsort(keys)
    sorted_keys = keys[by_key]
    moved = []
    for dims in _orders(alike, rank):
        places = np.arange(base)
        for dim, other in enumerate(dims):
            there = 1 + other * axes
            places[1 + dim * axes : 1 + (dim + 1) * axes] = np.arange(there, there + axes)
        image = places[digits]
        for order in _orders(like_axes, axes):
            moved.append(by_key[np.searchsorted(sorted_keys, image[:, order] @ powers)])
    table = np.array(moved)
    exchange = table.argmin(axis=0)
    return table, exchange, table[exchange, np.arange(exchange.size)]


def _like_axes(graph: PricedGraph) -> tuple[tuple[int, ...], ...]:
    """The mesh axes in groups: exchanging two of a group changes no price of this tensor."""
    classes = graph.space.classes
    price = {key: int(graph.class_price[number]) for number, key in enumerate(classes)}
    groups: list[list[int]] = []
    for axis, size in enumerate(graph.space.axes):
        for group in groups:
            swap = {axis: group[0], group[0]: axis}
            if graph.space.axes[group[0]] == size and all(
                price.get((kind, _swapped(kind, axes, swap), pieces)) == value
                for (kind, axes, pieces), value in price.items()
            ):
                group.append(axis)
                break
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


def _swapped(kind: str, axes: tuple[int, ...], swap: dict[int, int]) -> tuple[int, ...]:
    swapped = tuple(swap.get(axis, axis) for axis in axes)
    return tuple(sorted(swapped)) if kind in ("mask", "allreduce") else swapped


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
