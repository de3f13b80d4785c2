"""All layouts of a tensor of one rank on one mesh, and the single collectives between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding.step import LOCAL_KINDS, ReshardStep

__all__ = ["LayoutSpace", "layout_space"]

_Dims = tuple[tuple[int, ...], ...]
_Key = tuple[_Dims, tuple[int, ...], str]
_Move = tuple[str, tuple[int, ...], int, int, _Key]  # kind, axes, from_dim, to_dim, target
_NONE = -1  # a dimension that a kind does without


@dataclass(frozen=True, slots=True, eq=False)
class LayoutSpace:
    """The graph on which resharding is a shortest path (TensorOpt, section 4.2).

    Nodes are the V layouts: every ordered assignment of the mesh axes to dimensions, the other
    axes replicated or partial. Edges are the E steps, in a fixed order, sorted by source; two
    layouts have one edge at most. Neither depends on the tensor's shape. What a step costs
    depends on its *class* alone: its kind, its axes, and the number of pieces that the tensor is
    in where the step's bytes are counted (before it; after it for local steps).

    Attributes:
        axes: size of every mesh axis.
        reducers: the reducers of the partial layouts; without any there are none.
        keys: dimensions, partial axes and reducer of every layout.
        nodes: where a key is in ``keys``.
        splits: [V, rank], into how many pieces each dimension falls.
        source, target: [E], the layouts at an edge's ends.
        cost_class: [E], index into ``classes``.
        from_dim, to_dim: [E], the dimensions concerned, -1 for none.
        classes: kind, axes, pieces.
    """

    axes: tuple[int, ...]
    reducers: tuple[str, ...]
    keys: tuple[_Key, ...]
    nodes: dict[_Key, int]
    splits: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    cost_class: npt.NDArray[np.int64]
    from_dim: npt.NDArray[np.int8]
    to_dim: npt.NDArray[np.int8]
    classes: tuple[tuple[str, tuple[int, ...], int], ...]
    _permuted: dict[tuple[int, ...], npt.NDArray[np.int64]] = field(default_factory=dict)

    def node(self, layout: Layout) -> int:
        """The node of a layout that fits this mesh, rank and choice of reducers."""
        return self.nodes[layout.dims, layout.partial, layout.reducer]

    def layout(self, node: int) -> Layout:
        """The layout of a node."""
        return Layout(*self.keys[node])

    def step(self, edge: int) -> ReshardStep:
        """The step that an edge stands for."""
        kind, axes, _ = self.classes[self.cost_class[edge]]
        source, target = self.layout(int(self.source[edge])), self.layout(int(self.target[edge]))
        from_dim, to_dim = int(self.from_dim[edge]), int(self.to_dim[edge])
        reducer = {"allreduce": source, "reduce_scatter": source, "mask": target}.get(kind)
        return ReshardStep(
            kind,
            axes,
            source,
            target,
            None if from_dim == _NONE else from_dim,
            None if to_dim == _NONE else to_dim,
            reducer.reducer if reducer else None,
        )

    def permuted(self, order: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """[V], the nodes after the tensor's dimensions are transposed to ``order``."""
        if order not in self._permuted:
            self._permuted[order] = np.array(
                [
                    self.nodes[tuple(dims[dim] for dim in order), partial, reducer]
                    for dims, partial, reducer in self.keys
                ]
            )
        return self._permuted[order]


@lru_cache(maxsize=16)
def layout_space(axes: tuple[int, ...], rank: int, reducers: tuple[str, ...]) -> LayoutSpace:
    """Build the space once per mesh axes, rank and reducers (sorted, without duplicates)."""
    keys = tuple(_keys(len(axes), rank, reducers))
    nodes = {key: node for node, key in enumerate(keys)}
    pieces = [prod(axes[axis] for own in dims for axis in own) for dims, _, _ in keys]
    classes: dict[tuple[str, tuple[int, ...], int], int] = {}
    edges: list[tuple[int, int, int, int, int]] = []
    for node, key in enumerate(keys):
        for kind, group, from_dim, to_dim, reached in _moves(key, len(axes), reducers):
            target = nodes[reached]
            charged = pieces[target if kind in LOCAL_KINDS else node]
            cost_class = classes.setdefault((kind, group, charged), len(classes))
            edges.append((node, target, cost_class, from_dim, to_dim))
    table = np.array(edges, dtype=np.int64).reshape(-1, 5)
    splits = [[prod(axes[axis] for axis in own) for own in dims] for dims, _, _ in keys]
    return LayoutSpace(
        axes,
        reducers,
        keys,
        nodes,
        np.array(splits, dtype=np.int64).reshape(len(keys), rank),
        np.ascontiguousarray(table[:, 0]),
        np.ascontiguousarray(table[:, 1]),
        np.ascontiguousarray(table[:, 2]),
        table[:, 3].astype(np.int8),
        table[:, 4].astype(np.int8),
        tuple(classes),
    )


def _keys(axes: int, rank: int, reducers: Sequence[str]) -> Iterator[_Key]:
    """Every layout: unused axes are replicated or partial, the others lie in order on dims."""
    for count in range(axes + 1):
        for used in itertools.permutations(range(axes), count):
            unused = tuple(axis for axis in range(axes) if axis not in used)
            for dims in _cuts(used, rank):
                yield dims, (), "sum"
                for reducer in reducers:
                    for partial in _subsets(unused):
                        yield dims, partial, reducer


def _cuts(used: tuple[int, ...], rank: int) -> Iterator[_Dims]:
    """The ways to cut a sequence into ``rank`` runs, empty ones included."""
    if rank == 0:
        if not used:
            yield ()
        return
    for ends in itertools.combinations_with_replacement(range(len(used) + 1), rank - 1):
        bounds = (0, *ends, len(used))
        yield tuple(used[bounds[i] : bounds[i + 1]] for i in range(rank))


def _moves(key: _Key, axes: int, reducers: Sequence[str]) -> Iterator[_Move]:
    """The steps from one layout, local ones first: the order that breaks ties."""
    dims, partial, reducer = key
    used = {*partial, *itertools.chain.from_iterable(dims)}
    free = tuple(axis for axis in range(axes) if axis not in used)
    for to_dim in range(len(dims)):
        for group in _arrangements(free):
            yield "slice", group, _NONE, to_dim, (_append(dims, to_dim, group), partial, reducer)
    for new_reducer in (reducer,) if partial else reducers:
        for group in _subsets(free):
            merged = tuple(sorted(partial + group))
            yield "mask", group, _NONE, _NONE, (dims, merged, new_reducer)
    for from_dim, own in enumerate(dims):
        for start in range(len(own) - 1, -1, -1):
            group = own[start:]
            kept = (*dims[:from_dim], own[:start], *dims[from_dim + 1 :])
            yield "allgather", group, from_dim, _NONE, (kept, partial, reducer)
            for to_dim in range(len(dims)):
                if to_dim != from_dim:
                    moved = _append(kept, to_dim, group)
                    yield "alltoall", group, from_dim, to_dim, (moved, partial, reducer)
    for group in _subsets(partial):
        left = tuple(axis for axis in partial if axis not in group)
        yield "allreduce", group, _NONE, _NONE, (dims, left, reducer if left else "sum")
    for group in _arrangements(partial):
        left = tuple(axis for axis in partial if axis not in group)
        for to_dim in range(len(dims)):
            scattered = _append(dims, to_dim, group)
            reached = (scattered, left, reducer if left else "sum")
            yield "reduce_scatter", group, _NONE, to_dim, reached


def _append(dims: _Dims, dim: int, group: tuple[int, ...]) -> _Dims:
    return (*dims[:dim], dims[dim] + group, *dims[dim + 1 :])


@lru_cache(maxsize=4096)
def _subsets(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets, each in the given order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(axes, n) for n in counts))


@lru_cache(maxsize=4096)
def _arrangements(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets in every order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.permutations(axes, n) for n in counts))
