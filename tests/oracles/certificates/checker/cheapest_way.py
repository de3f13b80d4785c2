"""The cheapest way from one layout to another, found step by step without the planner's code.

`tensoropt.parallel.resharding` plans and prices ways for execution and search, in compiled tables.
For the checker, Dijkstra's algorithm answers the same question on a graph of layouts, whose arcs
are the single collectives and local steps of the paper's section 4.2.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.planner import Price

__all__ = ["blocks", "cheapest_way"]

_Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """An arc of the graph of layouts.

    Attributes:
        kind: the collective, or "slice" or "mask", which are local.
        axes: the mesh axes of the groups.
        target: the layout after the step.
    """

    kind: str
    axes: _Axes
    target: Layout


def cheapest_way(
    mesh: Mesh,
    shape: Sequence[int],
    itemsize: int,
    source: Layout,
    target: Layout,
    price: Price,
) -> int:
    """Nanoseconds of the cheapest steps between two layouts.

    Layouts on the way have partial values only if the source or the target has, with the same
    reducer. They split a dimension into uneven shards only if the source or the target does.

    Args:
        mesh: the devices.
        shape: shape of the whole tensor.
        itemsize: bytes of one element.
        source: the first layout.
        target: the last layout.
        price: the price of a step by the bytes of the largest shard; these are counted before a
            collective and after a local step.

    Raises:
        LayoutError: if no steps lead to the target.
    """
    reducers = frozenset(end.reducer for end in (source, target) if end.partial)
    uneven = {
        dim
        for end in (source, target)
        for dim, (extent, axes) in enumerate(zip(shape, end.dims, strict=True))
        if blocks(extent, mesh) % mesh.pieces(axes)
    }
    reached = {source: 0}
    order = itertools.count()  # a heap compares first entries; layouts have no order
    waiting = [(0, next(order), source)]
    while waiting:
        time, _, layout = heapq.heappop(waiting)
        if layout == target:
            return time
        if time > reached[layout]:
            continue
        for step in _steps(layout, len(mesh.axes), reducers):
            if not _fits(step.target, shape, mesh, uneven):
                continue
            priced = step.target if step.kind in ("slice", "mask") else layout
            largest = [
                -(-blocks(extent, mesh) // mesh.pieces(axes)) * (extent // blocks(extent, mesh))
                for extent, axes in zip(shape, priced.dims, strict=True)
            ]
            then = time + price(step.kind, step.axes, prod(largest) * itemsize)
            if then < reached.get(step.target, then + 1):
                reached[step.target] = then
                heapq.heappush(waiting, (then, next(order), step.target))
    raise LayoutError(f"steps lead from any layout to any other. Got none: {source} to {target}.")


def blocks(extent: int, mesh: Mesh) -> int:
    """The number of units of a dimension, which the mesh cuts; its elements if it has no unit."""
    return extent // dict(mesh.units).get(extent, 1)


def _fits(layout: Layout, shape: Sequence[int], mesh: Mesh, uneven: Collection[int]) -> bool:
    """Whether a layout's shards are equal, or uneven along these dimensions and not empty."""
    return all(
        blocks(extent, mesh) % mesh.pieces(axes) == 0
        or (dim in uneven and blocks(extent, mesh) >= mesh.pieces(axes))
        for dim, (extent, axes) in enumerate(zip(shape, layout.dims, strict=True))
    )


@lru_cache(maxsize=65536)
def _steps(layout: Layout, axes: int, reducers: frozenset[str]) -> tuple[_Step, ...]:
    """All single steps from a layout."""
    return (
        *_local_steps(layout, axes, reducers),
        *_moves(layout),
        *_reductions(layout),
    )


def _local_steps(layout: Layout, axes: int, reducers: frozenset[str]) -> Iterator[_Step]:
    """Keep a shard of a dimension, or set the value to zero on all devices but one."""
    free = [axis for axis in range(axes) if axis not in layout.axes]
    for group in _ordered(free):
        for dim in range(len(layout.dims)):
            yield _Step("slice", group, _with(layout, _longer(layout.dims, dim, group)))
    possible = {layout.reducer} if layout.partial else reducers
    for group in _sets(free):
        for reducer in sorted(possible):
            after = Layout(layout.dims, (*layout.partial, *group), reducer)
            yield _Step("mask", group, after)


def _moves(layout: Layout) -> Iterator[_Step]:
    """Gather a dimension's shards, innermost axes first, or split another dimension instead."""
    for dim, own in enumerate(layout.dims):
        for count in range(1, len(own) + 1):
            group = own[-count:]
            dims = (*layout.dims[:dim], own[:-count], *layout.dims[dim + 1 :])
            yield _Step("allgather", group, _with(layout, dims))
            for other in range(len(dims)):
                if other != dim:
                    after = _with(layout, _longer(dims, other, group))
                    yield _Step("alltoall", group, after)


def _reductions(layout: Layout) -> Iterator[_Step]:
    """Reduce partial values, to all devices or to a shard each."""
    for group in _sets(layout.partial):
        yield _Step("allreduce", group, _reduced(layout, layout.dims, group))
    for group in _ordered(layout.partial):
        for dim in range(len(layout.dims)):
            after = _reduced(layout, _longer(layout.dims, dim, group), group)
            yield _Step("reduce_scatter", group, after)


def _with(layout: Layout, dims: tuple[_Axes, ...]) -> Layout:
    return Layout(dims, layout.partial, layout.reducer)


def _reduced(layout: Layout, dims: tuple[_Axes, ...], group: _Axes) -> Layout:
    left = tuple(axis for axis in layout.partial if axis not in group)
    return Layout(dims, left, layout.reducer)


def _longer(dims: tuple[_Axes, ...], dim: int, group: _Axes) -> tuple[_Axes, ...]:
    return (*dims[:dim], (*dims[dim], *group), *dims[dim + 1 :])


def _sets(axes: Sequence[int]) -> Iterator[_Axes]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _ordered(axes: Sequence[int]) -> Iterator[_Axes]:
    for count in range(1, len(axes) + 1):
        yield from itertools.permutations(axes, count)
