"""The cheapest resharding from one layout to another: a shortest path over layouts.

TensorOpt, section 4.2 ("Flexible tensor splitting"): nodes are layouts, an edge is one collective
or local step between two layouts, and its weight is the time of the step.

The nodes are the layouts that divide the shape evenly. Along the dimensions that the source or the
target splits into uneven pieces, other layouts may do so, too. The nodes include partial layouts
with the reducers of the source and the target only. Costs are whole nanoseconds, so sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.assignments import unlike_rows
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.space import LayoutSpace, layout_space
from tensoropt.parallel.resharding.step import LOCAL_KINDS, ReshardStep
from tensoropt.parallel.resharding.traffic import filled_bytes

__all__ = [
    "Price",
    "PricedGraph",
    "plan_reshard",
    "price_layouts",
    "priced_graph",
    "step_bytes",
    "steps_of_shape",
    "uneven_dims",
]

Price = Callable[[str, tuple[int, ...], int], int]
"""Nanoseconds (a whole number, at least 1) of a step: its kind, its axes, and its `step_bytes`.

A price is pure (same arguments, same result) and hashable, because results are cached.
"""

_EXACT = 2**53  # SciPy adds path lengths in float64, which is exact below this number


def plan_reshard(
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    source: Layout,
    target: Layout,
    price: Price,
) -> tuple[ReshardStep, ...]:
    """Return the cheapest steps from one layout to another.

    Among several cheapest paths, take one with the fewest steps; among these, the first in a fixed
    order.

    Args:
        mesh: the devices.
        shape: shape of the whole tensor.
        itemsize: bytes of one element.
        source: the layout before.
        target: the layout after.
        price: cost of a step.

    Returns:
        The steps, in order; none if the layouts are equal.

    Raises:
        LayoutError: if a layout does not fit the shape.
        OptionError: if a price is not a whole number of at least 1.
    """
    for layout in (source, target):
        layout.local_shape(shape, mesh)
    if source == target:
        return ()
    uneven = uneven_dims(shape, mesh, source, target)
    reducers = _reducers(source, target)
    graph = priced_graph(mesh, tuple(shape), itemsize, reducers, price, uneven)
    start, goal = graph.space.node(source), graph.space.node(target)
    times = _solve(_matrix(graph), np.array([start]))[0]
    on_cheapest = np.flatnonzero(times[graph.source] + graph.weight == times[graph.target])
    path = _first_of_shortest(graph.source[on_cheapest], graph.target[on_cheapest], start, goal)
    steps = [graph.space.step(int(graph.edge[on_cheapest[position]])) for position in path]
    return steps_of_shape(steps, shape, mesh) if uneven else tuple(steps)


def uneven_dims(shape: Sequence[int], mesh: Mesh, *layouts: Layout) -> tuple[int, ...]:
    """Return the dimensions that a resharding may split into pieces of different extents.

    One of the layouts splits them so, or the mesh does in all layouts.
    """
    split = {dim for layout in layouts for dim in layout.uneven_dims(shape, mesh)}
    split.update(dim for dim, extent in enumerate(shape) if mesh.is_shared(extent))
    return tuple(sorted(split))


def steps_of_shape(
    steps: Sequence[ReshardStep], shape: Sequence[int], mesh: Mesh
) -> tuple[ReshardStep, ...]:
    """Return steps, each with the tensor's shape if the pieces differ before or after the step."""

    def differs(step: ReshardStep) -> bool:
        ends = step.source, step.target
        return any(layout.uneven_dims(shape, mesh) for layout in ends)

    return tuple(replace(s, shape=tuple(shape)) if differs(s) else s for s in steps)


def step_bytes(step: ReshardStep, mesh: Mesh, shape: Sequence[int], itemsize: int) -> int:
    """Return the bytes that a step is priced by: those of the largest piece before the step, or
    after a local step."""
    layout = step.target if step.is_local else step.source
    return layout.local_elements(shape, mesh) * itemsize


@dataclass(frozen=True, slots=True, eq=False)
class PricedGraph:
    """The layouts of a space that fit one shape, and the priced steps between them.

    Attributes:
        space: the layout space. Nodes have the same numbers here.
        fits: [V], whether each node fits the shape.
        class_price: [classes], nanoseconds of each cost class; 0 for classes of no edge here. It
            is empty if pieces may differ, because a step's price then depends on its layouts.
        edge: [e], the edges between nodes that fit.
        source, target: [e], their ends.
        weight: [e], their nanoseconds.
        alike: the tensor's dimensions, grouped by the numbers of pieces that divide them. Those
            with uneven pieces are grouped by their extent.
    """

    space: LayoutSpace
    fits: BoolArray
    class_price: Int64Array
    edge: Int64Array
    source: Int64Array
    target: Int64Array
    weight: Int64Array
    alike: tuple[tuple[int, ...], ...]


def _reducers(source: Layout, target: Layout) -> tuple[str, ...]:
    return tuple(sorted({layout.reducer for layout in (source, target) if layout.partial}))


@lru_cache(maxsize=32)
def priced_graph(
    mesh: Mesh,
    shape: tuple[int, ...],
    itemsize: int,
    reducers: tuple[str, ...],
    price: Price,
    uneven: tuple[int, ...] = (),
) -> PricedGraph:
    """Return `price_layouts`, cached."""
    return price_layouts(mesh, shape, itemsize, reducers, price, uneven=uneven)


def price_layouts(
    mesh: Mesh,
    shape: tuple[int, ...],
    itemsize: int,
    reducers: tuple[str, ...],
    price: Price,
    ordered: bool = True,
    uneven: tuple[int, ...] = (),
) -> PricedGraph:
    """Return the layouts of one kind of tensor and the priced steps between them.

    Args:
        mesh: the devices.
        shape: shape of the whole tensor.
        itemsize: bytes of one element.
        reducers: reducers of the partial layouts, sorted.
        price: cost of a step.
        ordered: whether a price may depend on the order of axes. If not, it is called for ascending
            axes only.
        uneven: the dimensions that may fall into uneven pieces, of one element at least.

    Raises:
        OptionError: if a price is not a whole number of at least 1.
    """
    space = layout_space(mesh.axes, len(shape), reducers)
    extents = np.array([mesh.blocks(extent) for extent in shape], np.int64)
    fits_dim = extents % space.splits == 0
    largest = -(-extents // space.splits) * np.array([mesh.unit(n) for n in shape], np.int64)
    for dim in uneven:
        if mesh.is_shared(shape[dim]):
            fits_dim[:, dim], largest[:, dim] = _shared_pieces(mesh, shape[dim], space, dim)
        else:
            fits_dim[:, dim] |= extents[dim] >= space.splits[:, dim]
    fits = fits_dim.all(axis=1)
    edge, source, target = np.arange(space.source.size), space.source, space.target
    classes = space.cost_class
    if not fits.all():
        edge = np.flatnonzero(fits[source] & fits[target])
        source, target, classes = source[edge], target[edge], classes[edge]
    divisors = np.flatnonzero(np.bincount(space.splits.ravel())).tolist()
    groups: dict[tuple[bool | int, ...], list[int]] = {}
    for dim, size in enumerate(shape):
        blocks = mesh.blocks(size)
        kind = (size,) if dim in uneven else tuple(blocks % divisor == 0 for divisor in divisors)
        groups.setdefault(kind, []).append(dim)
    alike = tuple(tuple(dims) for dims in groups.values())
    if uneven:
        is_local = _counts_target(space)[edge]
        bytes_ = largest[np.where(is_local, target, source)].prod(axis=1) * itemsize
        copied = np.zeros_like(bytes_)
        if mesh.shares is not None:
            ends = largest[source], largest[target]
            bytes_, copied = _filled_bytes(space, edge, mesh, shape, ends, bytes_, is_local)
        weight = _priced_edges(space, classes, bytes_, copied, price)
        none = np.zeros(0, np.int64)
        return PricedGraph(space, fits, none, edge, source, target, weight, alike)
    whole = prod(shape) * itemsize
    table = np.zeros(len(space.classes), dtype=np.int64)
    in_use = np.bincount(classes, minlength=len(space.classes)) > 0
    if not ordered:
        ascending = space.ascending_classes()
        in_use = np.bincount(ascending[in_use], minlength=len(space.classes)) > 0
    for cost_class in np.flatnonzero(in_use).tolist():
        kind, group, pieces = space.classes[cost_class]
        value = price(kind, group, whole // pieces)
        if type(value) is not int or not 1 <= value < _EXACT:
            value = _checked(value, kind, group)
        table[cost_class] = value
    if not ordered:
        table = table[ascending]
    return PricedGraph(space, fits, table, edge, source, target, table[classes], alike)


def _shared_pieces(
    mesh: Mesh, extent: int, space: LayoutSpace, dim: int
) -> tuple[BoolArray, Int64Array]:
    """Return, for each layout, whether the pieces of a dimension have elements, and the largest."""
    splits = [dims[dim] for dims, _, _ in space.keys]
    pieces = {
        axes: (not mesh.has_empty(extent, axes), mesh.largest(extent, axes)) for axes in set(splits)
    }
    fits, largest = zip(*(pieces[axes] for axes in splits), strict=True)
    return np.array(fits, bool), np.array(largest, np.int64)


def _filled_bytes(
    space: LayoutSpace,
    edge: Int64Array,
    mesh: Mesh,
    shape: tuple[int, ...],
    ends: tuple[Int64Array, Int64Array],
    bytes_: Int64Array,
    is_local: BoolArray,
) -> tuple[Int64Array, Int64Array]:
    """Return the bytes that edges move, and those that they copy, see `filled_bytes`.

    Args:
        ends: the largest pieces before and after each edge, as [e, dimensions].
        bytes_: the bytes of the largest piece before a step, or after a local step.
        is_local: whether each edge is local.
    """
    shared = np.array([*map(mesh.is_shared, shape), False], bool)  # the last is for NO_DIM
    sizes = np.array([mesh.pieces(axes) for _, axes, _ in space.classes], np.int64)
    cut_dim, joined_dim = space.to_dim[edge], space.from_dim[edge]
    cut, joined = (shared[dims] & ~is_local for dims in (cut_dim, joined_dim))
    before, after = ends
    each = np.arange(edge.size)
    result = bytes_ * after.prod(axis=1) // np.maximum(before.prod(axis=1), 1)
    pieces = before[each, cut_dim], after[each, cut_dim], sizes[space.cost_class[edge]]
    return filled_bytes(bytes_, result, pieces, (cut, joined))


def _counts_target(space: LayoutSpace) -> BoolArray:
    """Return whether each edge is priced by the pieces after it (it is local), as bool[E]."""
    is_local = np.array([kind in LOCAL_KINDS for kind, _, _ in space.classes], dtype=bool)
    counts: BoolArray = is_local[space.cost_class]
    return counts


def _priced_edges(
    space: LayoutSpace,
    classes: Int64Array,
    bytes_: Int64Array,
    copied: Int64Array,
    price: Price,
) -> Int64Array:
    """Return the nanoseconds of edges, given the class of each, and the bytes it moves and
    copies."""
    rows = np.stack([classes, bytes_, copied], axis=1)
    first, of_edge = unlike_rows(rows)
    prices = []
    for cost_class, size, copy in rows[first].tolist():
        kind, group, _ = space.classes[cost_class]
        copying = price("slice", group, copy) if copy else 0
        prices.append(_checked(price(kind, group, size) + copying, kind, group))
    weights: Int64Array = np.array(prices, np.int64)[of_edge]
    return weights


@lru_cache(maxsize=32)
def _matrix(graph: PricedGraph) -> csr_matrix:
    """Return the weights of the edges as a sparse matrix of float64."""
    size = graph.space.size
    rows = np.concatenate([[0], np.cumsum(np.bincount(graph.source, minlength=size))])
    weight = graph.weight.astype(np.float64)
    return csr_matrix((weight, graph.target, rows), shape=(size, size))


def _checked(price: int, kind: str, axes: tuple[int, ...]) -> int:
    if not isinstance(price, (int, np.integer)) or not 1 <= price < _EXACT:
        raise OptionError(
            f"a price is a whole number of nanoseconds, at least 1 and below 2**53. Got {price!r} "
            f"for {kind} over axes {list(axes)}."
        )
    return int(price)


def _solve(matrix: csr_matrix, starts: Int64Array) -> Int64Array:
    """Return exact path lengths as [starts, V]; -1 where there is no path.

    A sum in float64 is exact as long as it is below 2**53. A larger sum is never rounded below
    2**53, so it suffices to check the results.
    """
    lengths = dijkstra(matrix, indices=starts)
    lengths[np.isinf(lengths)] = -1
    if lengths.max(initial=0) >= _EXACT:
        raise OptionError(
            f"the prices of a path add up to less than 2**53. Got {lengths.max():.3g} nanoseconds."
        )
    return np.asarray(lengths, dtype=np.int64)


def _first_of_shortest(source: Int64Array, target: Int64Array, start: int, goal: int) -> list[int]:
    """Return the positions of the edges of the path with the fewest edges.

    The edges are those of all cheapest paths, so they have no cycle. Ties are broken by position.
    """
    left = {goal: 0}  # number of edges from a node to the goal
    reached = [goal]
    while start not in left:
        if not reached:
            raise LayoutError("no sequence of collectives leads from the source to the target.")
        tails = []
        for head in reached:
            for tail in source[target == head].tolist():
                if tail not in left:
                    left[tail] = left[head] + 1
                    tails.append(tail)
        reached = tails
    path: list[int] = []
    node = start
    while node != goal:
        positions = np.flatnonzero(source == node)
        heads = target[positions].tolist()
        nearer = next(n for n, head in enumerate(heads) if left.get(head) == left[node] - 1)
        path.append(int(positions[nearer]))
        node = heads[nearer]
    return path
