"""Costs of the cheapest reshardings between all pairs of many layouts, for the search."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import factorial, gcd, prod

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

_UNREACHABLE = 2**61
_MOST_SYMMETRIES = 720  # symmetries that are used at most; with more, none of them is used


class Distances:
    """Costs of the cheapest reshardings on one mesh.

    The paths are those of `tensoropt.parallel.resharding.planner.plan_reshard`. They depend on the
    bytes of a tensor, on the numbers of pieces that divide its dimensions, in any order, and on the
    extents, in units, of dimensions with uneven pieces. Tensors that have these in common are of
    one kind, and the paths of each kind are computed once.

    A symmetry is a permutation of dimensions that the same numbers of pieces divide, combined with
    a permutation of mesh axes that have the same prices in every step. It maps the graph of layouts
    to itself with equal prices, and so cheapest paths to cheapest paths. Paths are computed for one
    source of each set of layouts that symmetries map to each other.

    Args:
        mesh: the devices.
        price: cost of a step.
        ordered: whether a price may depend on the order of axes.
    """

    def __init__(self, mesh: Mesh, price: Price, *, ordered: bool = True) -> None:
        self._mesh = mesh
        self._price = cache(price)
        self._ordered = ordered
        self._path_lengths: dict[object, _PathLengths] = {}
        self._parts: dict[object, tuple[Int64Array, list[_UnevenPart]]] = {}
        self._groups: dict[tuple[int, tuple[int, ...]], tuple[Int64Array, list[_LayoutGroup]]] = {}

    def between(
        self, shape: tuple[int, ...], itemsize: int, sources: Int64Array, targets: Int64Array
    ) -> Int64Array:
        """Return the nanoseconds of the cheapest resharding of each pair, as [sources, targets].

        Args:
            shape: shape of the whole tensor.
            itemsize: bytes of one element.
            sources, targets: codes of layouts (`tensoropt.parallel.assignments.encode`).

        Raises:
            LayoutError: if a layout does not fit the shape.
            OptionError: if a price is not a whole number of at least 1.
        """
        mesh = self._mesh
        if any(mesh.blocks(extent) % mesh.size or mesh.is_shared(extent) for extent in shape):
            uneven = self._uneven(sources, shape), self._uneven(targets, shape)
            if any(part.dims for parts in uneven for part in parts):
                return self._between_uneven(shape, itemsize, *uneven)
        return self._between(shape, itemsize, sources, targets)

    def _between_uneven(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: list[_UnevenPart],
        targets: list[_UnevenPart],
    ) -> Int64Array:
        """Return `between` where some layouts have uneven pieces. Each pair may split the
        dimensions into uneven pieces that its source or target does."""
        rows, columns = (sum(part.codes.size for part in parts) for parts in (sources, targets))
        result = np.zeros((rows, columns), dtype=np.int64)
        for first, second in itertools.product(sources, targets):
            dims = tuple(sorted({*first.dims, *second.dims}))
            table = self._between(shape, itemsize, first.codes, second.codes, dims)
            result[np.ix_(first.positions, second.positions)] = table
        return result

    def _uneven(self, codes: Int64Array, shape: tuple[int, ...]) -> list[_UnevenPart]:
        """Return layouts grouped by the dimensions that they split into uneven pieces."""
        key = id(codes), shape
        if key not in self._parts:
            states = code_states(codes, len(self._mesh.axes))
            pieces = np.ones((codes.size, len(shape)), np.int64)
            for axis, size in enumerate(self._mesh.axes):
                split = np.flatnonzero((states[:, axis] > 0) & (states[:, axis] <= len(shape)))
                pieces[split, states[split, axis] - 1] *= size
            rows = np.array([self._mesh.blocks(n) for n in shape], np.int64) % pieces != 0
            rows |= [self._mesh.is_shared(extent) for extent in shape]
            kinds, of_code = np.unique(rows, axis=0, return_inverse=True)
            parts = []
            for number, kind in enumerate(kinds):
                positions = np.flatnonzero(of_code.ravel() == number)
                dims = tuple(np.flatnonzero(kind).tolist())
                parts.append(_UnevenPart(dims, positions, codes[positions]))
            self._parts[key] = codes, parts
        return self._parts[key][1]

    def _between(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Int64Array,
        targets: Int64Array,
        uneven: tuple[int, ...] = (),
    ) -> Int64Array:
        """Return `between`, where only the dimensions ``uneven`` fall into uneven pieces."""
        divisors = [
            blocks if dim in uneven else gcd(blocks, self._mesh.size)
            for dim, blocks in enumerate(map(self._mesh.blocks, shape))
        ]
        split_dims = [dim for dim, divisor in enumerate(divisors) if divisor > 1]
        split_dims.sort(key=lambda dim: -divisors[dim])
        kind = tuple(divisors[dim] for dim in split_dims)
        bytes_ = prod(shape) * itemsize // prod(kind)
        new_dims = [-1] * len(shape)
        for position, old in enumerate(split_dims):
            new_dims[old] = position
        source_groups, target_groups = (
            self._grouped(codes, shape, tuple(new_dims)) for codes in (sources, targets)
        )
        result = np.zeros((sources.size, targets.size), dtype=np.int64)
        for first, second in itertools.product(source_groups, target_groups):
            reducers = tuple(sorted({*first.reducers, *second.reducers}))
            dims = tuple(new_dims[dim] for dim in uneven)
            self._lengths(kind, bytes_, reducers, dims).fill(result, first, second)
        return result

    def _grouped(
        self, codes: Int64Array, shape: tuple[int, ...], new_dims: tuple[int, ...]
    ) -> list[_LayoutGroup]:
        """Return the layouts grouped by reducer, with dimension d renamed to ``new_dims[d]``.

        Groups of an array are remembered by its identity.
        """
        key = id(codes), new_dims
        if key in self._groups:
            return self._groups[key][1]
        renamed = renumbered(codes, len(self._mesh.axes), new_dims)
        if (renamed < 0).any():
            layout = decode(int(codes[int(renamed.argmin())]), len(shape), self._mesh)
            unfit = [extent for extent, dim in zip(shape, new_dims, strict=True) if dim < 0]
            raise LayoutError(
                f"a layout fits its tensor's shape. Got layout {layout}, which "
                f"does not fit the shape {shape}: {unfit} cannot be split."
            )
        reducers = partial_reducers(renamed, len(self._mesh.axes))
        groups = []
        for number in np.unique(reducers).tolist():
            positions = np.flatnonzero(reducers == number)
            name = () if number < 0 else (REDUCERS[number],)
            groups.append(_LayoutGroup(name, positions.astype(np.uint64), renamed[positions]))
        self._groups[key] = codes, groups
        return groups

    def _lengths(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        reducers: tuple[str, ...],
        uneven: tuple[int, ...],
    ) -> _PathLengths:
        key = shape, itemsize, reducers, uneven
        if key not in self._path_lengths:
            price, ordered = self._price, self._ordered
            graph = price_layouts(self._mesh, shape, itemsize, reducers, price, ordered, uneven)
            self._path_lengths[key] = _PathLengths(graph)
        return self._path_lengths[key]


@dataclass(frozen=True, slots=True, eq=False)
class _UnevenPart:
    """The layouts of an array that split the same dimensions into uneven pieces.

    Attributes:
        dims: the dimensions.
        positions: int64[P], the positions of the layouts in the array.
        codes: int64[P], their codes.
    """

    dims: tuple[int, ...]
    positions: Int64Array
    codes: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class _LayoutGroup:
    """The layouts of an array that are partial by one reducer, or those that are not partial.

    Attributes:
        reducers: the reducer, or nothing.
        positions: uint64[P], their positions in the array. They are unsigned because Numba handles
            negative indices of signed ones, which takes time.
        codes: int64[P], their codes.
        nodes: their nodes in each layout space that was asked for.
    """

    reducers: tuple[str, ...]
    positions: npt.NDArray[np.uint64]
    codes: Int64Array
    nodes: dict[LayoutSpace, Int64Array] = field(default_factory=dict)

    def nodes_in(self, space: LayoutSpace) -> Int64Array:
        """Return the nodes of these layouts, as int64[P]."""
        if space not in self.nodes:
            nodes = space.nodes_of(_digits(self.codes, space))
            if (nodes < 0).any():
                raise LayoutError(
                    "a layout uses only dimensions of its tensor and axes of its mesh."
                )
            self.nodes[space] = nodes
        return self.nodes[space]


@dataclass(slots=True, eq=False)
class _PathLengths:
    """Path lengths in one priced graph, from the nodes that were asked for.

    Attributes:
        graph: the layouts of one kind of tensor.
        images: int64[symmetries, V], the image of each node under each symmetry.
        symmetry: int64[V], the symmetry that maps a node to its representative.
        representative: int64[V], the first node among the images of a node.
        row: int64[V], the row of ``lengths`` for a representative; -1 if it is not computed yet.
        lengths: int64[rows, V].
    """

    graph: PricedGraph
    images: Int64Array = field(init=False)
    symmetry: Int64Array = field(init=False)
    representative: Int64Array = field(init=False)
    row: Int64Array = field(init=False)
    lengths: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        self.images, self.symmetry, self.representative = _symmetries(
            graph.space, _like_axes(graph), graph.alike
        )
        self.row = np.full(self.representative.size, -1, dtype=np.int64)
        self.lengths = np.zeros((0, self.representative.size), dtype=np.int64)

    def fill(self, table: Int64Array, sources: _LayoutGroup, targets: _LayoutGroup) -> None:
        """Write the lengths of the shortest paths from sources to targets into a table."""
        starts, goals = self._nodes(sources), self._nodes(targets)
        graph = self.graph
        wanted = np.unique(self.representative[starts])
        missing = wanted[self.row[wanted] < 0]
        if missing.size:
            ends = np.zeros(self.row.size + 1, dtype=np.int64)
            np.cumsum(np.bincount(graph.source, minlength=self.row.size), out=ends[1:])
            computed = _shortest_paths(ends, graph.target, graph.weight, missing)
            self.row[missing] = len(self.lengths) + np.arange(missing.size)
            self.lengths = np.concatenate([self.lengths, computed])
        source_rows = self.row[self.representative[starts]], self.symmetry[starts]
        positions = sources.positions, targets.positions
        longest = _gather(self.lengths, *source_rows, self.images, goals, *positions, table)
        if longest >= _UNREACHABLE:
            raise LayoutError("no sequence of collectives leads from a source to a target.")

    def _nodes(self, group: _LayoutGroup) -> Int64Array:
        """Return the nodes of layouts, after checking that they fit the shape."""
        space = self.graph.space
        nodes = group.nodes_in(space)
        unfit = nodes[~self.graph.fits[nodes]]
        if unfit.size:
            raise LayoutError(
                "a layout fits its tensor's shape. Got layout "
                f"{space.layout(int(unfit[0]))}, which does not fit the shape."
            )
        return nodes


@numba.njit(cache=True, nogil=True)
def _shortest_paths(
    ends: Int64Array, target: Int64Array, weight: Int64Array, starts: Int64Array
) -> Int64Array:
    """Return the path lengths from each start to every node, as int64[starts, nodes].

    Edges are relaxed until no length changes. Cheap paths have few steps, so a few rounds suffice.
    An edge is relaxed for all starts at once. The edges of node n are ``ends[n]`` to ``ends[n +
    1]``.
    """
    nodes, count = ends.size - 1, starts.size
    lengths = np.full((nodes, count), _UNREACHABLE, dtype=np.int64)
    changed = np.zeros(nodes, dtype=np.bool_)
    for number in range(count):
        lengths[starts[number], number] = 0
        changed[starts[number]] = True
    has_changed = True
    while has_changed:
        has_changed = False
        for tail in range(nodes):
            if not changed[tail]:
                continue
            changed[tail] = False
            at_tail = lengths[tail]
            for edge in range(ends[tail], ends[tail + 1]):
                at_head, step = lengths[target[edge]], weight[edge]
                difference = np.int64(0)
                for number in range(count):  # without branches, so that it is vectorized
                    shorter = min(at_tail[number] + step, at_head[number])
                    difference |= shorter ^ at_head[number]
                    at_head[number] = shorter
                if difference != 0:
                    changed[target[edge]] = True
                    has_changed = True
    return np.ascontiguousarray(lengths.T)


@numba.njit(cache=True, nogil=True)
def _gather(
    lengths: Int64Array,
    row: Int64Array,
    symmetry: Int64Array,
    images: Int64Array,
    goals: Int64Array,
    rows: npt.NDArray[np.uint64],
    columns: npt.NDArray[np.uint64],
    table: Int64Array,
) -> np.int64:
    """Write the path lengths from sources to goals into a table, and return the longest.

    ``row`` and ``symmetry`` are those of the sources, ``rows`` and ``columns`` the positions of
    sources and goals in the table.
    """
    longest = np.int64(0)
    goal_images = np.empty((images.shape[0], goals.size), dtype=np.uint32)
    is_filled = np.zeros(images.shape[0], dtype=np.bool_)
    for start in range(rows.size):
        number = symmetry[start]
        if not is_filled[number]:
            is_filled[number] = True
            for goal in range(goals.size):
                goal_images[number, goal] = images[number, goals[goal]]
        from_source, image, table_row = lengths[row[start]], goal_images[number], table[rows[start]]
        for goal in range(goals.size):
            length = from_source[image[goal]]
            table_row[columns[goal]] = length
            longest = max(longest, length)
    return longest


def _digits(codes: Int64Array, space: LayoutSpace) -> Int64Array:
    """Return the digits (`LayoutSpace.digits`) of layouts given by codes."""
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
        earlier = states[:, :axis] == states[:, axis : axis + 1]  # axes of the same dimension
        digits[:, axis] += earlier.sum(axis=1) * split[:, axis]
    return digits


@lru_cache(maxsize=64)
def _symmetries(
    space: LayoutSpace, like_axes: tuple[tuple[int, ...], ...], alike: tuple[tuple[int, ...], ...]
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the images of all nodes under each symmetry, and the representatives.

    Returns:
        int64[symmetries, V], the images; int64[V], the symmetry that maps a node to its
        representative; and int64[V], the representative.
    """
    axes, rank = len(space.axes), space.rank
    permuted = _orders(alike, rank)
    dims = np.array(permuted, np.int64).reshape(len(permuted), rank)  # also for rank 0
    new_digit = np.tile(np.arange(2 + rank * axes + len(space.reducers)), (len(dims), 1))
    for dim in range(rank):
        first = 1 + dims[:, dim : dim + 1] * axes
        new_digit[:, 1 + dim * axes : 1 + (dim + 1) * axes] = first + np.arange(axes)
    image_digits = new_digit[:, space.digits]
    orders = _orders(like_axes, axes)
    images = np.concatenate([space.nodes_of(image_digits[:, :, order]) for order in orders])
    symmetry = images.argmin(axis=0)
    return images, symmetry, images[symmetry, np.arange(symmetry.size)]


def _like_axes(graph: PricedGraph) -> tuple[tuple[int, ...], ...]:
    """Return groups of mesh axes. Exchanging two axes of a group changes no price of this
    tensor."""
    prices = graph.class_price
    if not prices.size:
        return tuple((axis,) for axis in range(len(graph.space.axes)))
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


_exchanged_classes = lru_cache(maxsize=256)(LayoutSpace.exchanged_classes)


def _orders(groups: Sequence[tuple[int, ...]], count: int) -> list[list[int]]:
    """Return all permutations of ``count`` numbers that map each group to itself.

    Return only the identity if there are more than `_MOST_SYMMETRIES`.
    """
    if prod(factorial(len(group)) for group in groups) > _MOST_SYMMETRIES:
        return [list(range(count))]
    orders = []
    for permuted_groups in itertools.product(*(itertools.permutations(group) for group in groups)):
        order = list(range(count))
        for group, permuted in zip(groups, permuted_groups, strict=True):
            for position, image_position in zip(group, permuted, strict=True):
                order[position] = image_position
        orders.append(order)
    return orders
