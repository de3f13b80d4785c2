"""The cheapest way from one layout to another: a shortest path over layouts.

TensorOpt, section 4.2 ("Flexible tensor splitting"): nodes are layouts, an edge is one collective
(or local step) that turns one layout into another, its weight is the collective's time. Nodes are
the layouts that fit the shape, partial ones among them for the reducers of the two ends only: from
one true tensor to another no path passes through partial sums. Costs are whole nanoseconds and
sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.space import LayoutSpace, layout_space
from tensoropt.parallel.resharding.step import ReshardStep

__all__ = [
    "Price",
    "PricedGraph",
    "plan_reshard",
    "price_layouts",
    "priced_graph",
    "step_bytes",
]

Price = Callable[[str, tuple[int, ...], int], int]
"""Nanoseconds (a whole number, at least 1) of a step: its kind, its axes, and its `step_bytes`.

A price is pure (same arguments, same answer) and hashable: what it said is remembered.
"""

_EXACT = 2**53  # below it float64, in which SciPy adds up the paths, holds every whole number


def plan_reshard(
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    source: Layout,
    target: Layout,
    price: Price,
) -> tuple[ReshardStep, ...]:
    """The cheapest steps between two layouts; among equals the fewest, then in a fixed order.

    Args:
        mesh: the devices.
        shape: the whole tensor's.
        itemsize: bytes of one element.
        source: the layout to start from.
        target: the layout to arrive at.
        price: what a step costs.

    Returns:
        The steps, each from where the one before arrived; none if the layouts are the same.

    Raises:
        LayoutError: if a layout does not fit the shape.
        OptionError: if the price is not a whole number of at least 1.
    """
    for layout in (source, target):
        layout.local_shape(shape, mesh)
    if source == target:
        return ()
    graph = priced_graph(mesh.axes, tuple(shape), itemsize, _reducers(source, target), price)
    start, goal = graph.space.node(source), graph.space.node(target)
    times = _solve(_matrix(graph), np.array([start]))[0]
    tight = np.flatnonzero(times[graph.source] + graph.weight == times[graph.target])
    path = _first_of_shortest(graph.source[tight], graph.target[tight], start, goal)
    return tuple(graph.space.step(int(graph.edge[tight[position]])) for position in path)


def step_bytes(step: ReshardStep, mesh: Mesh, shape: Sequence[int], itemsize: int) -> int:
    """Bytes by which a step is priced: of the local piece before it, or after a local step."""
    layout = step.target if step.is_local else step.source
    return layout.local_elements(shape, mesh) * itemsize


@dataclass(frozen=True, slots=True, eq=False)
class PricedGraph:
    """The part of a layout space that fits one shape, with prices.

    Attributes:
        space: where nodes and edges come from; nodes keep their numbers.
        fits: [V], which nodes fit the shape.
        class_price: [classes], nanoseconds of each cost class; 0 where none was asked for.
        edge: [e], the edges whose two ends fit.
        source, target: [e], their ends.
        weight: [e], nanoseconds.
        alike: the tensor's dimensions, in groups that divide by the same numbers.
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
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    itemsize: int,
    reducers: tuple[str, ...],
    price: Price,
) -> PricedGraph:
    """`price_layouts`, remembered."""
    return price_layouts(axes, shape, itemsize, reducers, price)


def price_layouts(
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    itemsize: int,
    reducers: tuple[str, ...],
    price: Price,
    ordered: bool = True,
) -> PricedGraph:
    """The layouts of one kind of tensor, and what the steps between them cost.

    Args:
        axes: size of every mesh axis.
        shape: the whole tensor's.
        itemsize: bytes of one element.
        reducers: of the partial layouts, sorted.
        price: what a step costs.
        ordered: whether a price may depend on the order of axes; else it is asked for one.

    Raises:
        OptionError: if a price is not a whole number of at least 1.
    """
    space = layout_space(axes, len(shape), reducers)
    fits = (np.array(shape, dtype=np.int64) % space.splits == 0).all(axis=1)
    edge, source, target = np.arange(space.source.size), space.source, space.target
    classes = space.cost_class
    if not fits.all():
        edge = np.flatnonzero(fits[source] & fits[target])
        source, target, classes = source[edge], target[edge], classes[edge]
    whole = prod(shape) * itemsize
    table = np.zeros(len(space.classes), dtype=np.int64)
    asked = np.bincount(classes, minlength=len(space.classes)) > 0
    if not ordered:
        ascending = space.ascending_classes()
        asked = np.bincount(ascending[asked], minlength=len(space.classes)) > 0
    for cost_class in np.flatnonzero(asked).tolist():
        kind, group, pieces = space.classes[cost_class]
        value = price(kind, group, whole // pieces)
        if type(value) is not int or not 1 <= value < _EXACT:
            value = _checked(value, kind, group)
        table[cost_class] = value
    if not ordered:
        table = table[ascending]
    divisors = np.flatnonzero(np.bincount(space.splits.ravel())).tolist()
    groups: dict[tuple[bool, ...], list[int]] = {}
    for dim, size in enumerate(shape):
        groups.setdefault(tuple(size % divisor == 0 for divisor in divisors), []).append(dim)
    alike = tuple(tuple(dims) for dims in groups.values())
    return PricedGraph(space, fits, table, edge, source, target, table[classes], alike)


@lru_cache(maxsize=32)
def _matrix(graph: PricedGraph) -> csr_matrix:
    """The edges' weights as a sparse matrix, float64."""
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
    """[starts, V], exact path lengths; -1 where there is no path.

    A float64 sum of whole numbers is exact below 2**53, and one that is not below never rounds
    to below, so that checking the results suffices.
    """
    lengths = dijkstra(matrix, indices=starts)
    lengths[np.isinf(lengths)] = -1
    if lengths.max(initial=0) >= _EXACT:
        raise OptionError(
            f"the prices of a path add up to less than 2**53. Got {lengths.max():.3g} nanoseconds."
        )
    return np.asarray(lengths, dtype=np.int64)


def _first_of_shortest(source: Int64Array, target: Int64Array, start: int, goal: int) -> list[int]:
    """Positions of the edges of the path with the fewest edges, the first ones among equals.

    The edges are those of all cheapest paths, so that they form no cycle.
    """
    left = {goal: 0}  # edges from here to the goal
    reached = [goal]
    while start not in left:
        if not reached:
            raise LayoutError("no sequence of collectives leads from the source to the target.")
        before = []
        for head in reached:
            for tail in source[target == head].tolist():
                if tail not in left:
                    left[tail] = left[head] + 1
                    before.append(tail)
        reached = before
    path: list[int] = []
    node = start
    while node != goal:
        positions = np.flatnonzero(source == node)
        heads = target[positions].tolist()
        nearer = next(n for n, head in enumerate(heads) if left.get(head) == left[node] - 1)
        path.append(int(positions[nearer]))
        node = heads[nearer]
    return path
