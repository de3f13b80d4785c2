"""All layouts of a tensor of one rank on one mesh, and the single collectives between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.resharding.moves import NO_DIM, Moves
from tensoropt.parallel.resharding.numbering import Places, all_digits, arrangements
from tensoropt.parallel.resharding.step import KINDS, LOCAL_KINDS, ReshardStep

__all__ = ["LayoutSpace", "layout_space"]

_Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], str]
_UNORDERED = ("mask", "allreduce")  # kinds for which the order of axes has no effect


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
        digits: [V, axes], what each axis does: 0 is nothing, 1 + dim * axes + place that it is at
            that place among those that split a dimension, 1 + rank * axes + r that the layout is
            partial over it by reducer r of ``reducers``.
        splits: [V, rank], into how many pieces each dimension falls.
        source, target: [E], the layouts at an edge's ends.
        cost_class: [E], index into ``classes``.
        from_dim, to_dim: [E], the dimensions concerned, -1 for none.
        classes: kind, axes, pieces.
        class_numbers: [classes], ascending: place of the kind in `KINDS` and of the axes among all
            arrangements of axes and of the pieces among all counts of pieces, as one number.
    """

    axes: tuple[int, ...]
    reducers: tuple[str, ...]
    digits: Int64Array
    splits: Int64Array
    source: Int64Array
    target: Int64Array
    cost_class: Int64Array
    from_dim: Int8Array
    to_dim: Int8Array
    classes: tuple[tuple[str, tuple[int, ...], int], ...]
    class_numbers: Int64Array
    _places: Places
    _keys: list[_Key] = field(default_factory=list)
    _nodes: dict[_Key, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of layouts."""
        return len(self.digits)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.splits.shape[1]

    @property
    def keys(self) -> Sequence[_Key]:
        """Dimensions, partial axes and reducer of every layout."""
        if not self._keys:
            self._keys.extend(self._key(row) for row in self.digits.tolist())
        return self._keys

    @property
    def nodes(self) -> dict[_Key, int]:
        """Where a key is in ``keys``."""
        if not self._nodes:
            self._nodes.update((key, node) for node, key in enumerate(self.keys))
        return self._nodes

    def nodes_of(self, digits: Int64Array) -> Int64Array:
        """int64[...], the nodes with these ``digits``, [..., axes]; -1 where there is none."""
        return self._places.nodes(digits @ self._places.weights)

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
            None if from_dim == NO_DIM else from_dim,
            None if to_dim == NO_DIM else to_dim,
            reducer.reducer if reducer else None,
        )

    def exchanged_classes(self, one: int, other: int) -> Int64Array:
        """The cost class that every class becomes when two axes of equal size are exchanged."""
        several, counts = _exchanged_groups(len(self.axes), one, other), self._counts
        step, pieces = np.divmod(self.class_numbers, counts)
        kind, group = np.divmod(step, several.shape[1])
        numbers = (kind * several.shape[1] + several[kind, group]) * counts + pieces
        found: Int64Array = np.searchsorted(self.class_numbers, numbers)
        return found

    def ascending_classes(self) -> Int64Array:
        """The cost class that every class becomes when its axes are named in ascending order."""
        ascending, counts = _ascending_groups(len(self.axes)), self._counts
        step, pieces = np.divmod(self.class_numbers, counts)
        kind, group = np.divmod(step, ascending.size)
        numbers = (kind * ascending.size + ascending[group]) * counts + pieces
        found: Int64Array = np.searchsorted(self.class_numbers, numbers)
        return found

    @property
    def _counts(self) -> int:
        """How many different counts of pieces there are."""
        return int(np.count_nonzero(np.bincount(self.splits.prod(axis=1))))

    def _key(self, digits: Sequence[int]) -> _Key:
        count = len(self.axes)
        first_partial = 1 + self.rank * count
        dims: list[dict[int, int]] = [{} for _ in range(self.rank)]
        partial = tuple(axis for axis, digit in enumerate(digits) if digit >= first_partial)
        for axis, digit in enumerate(digits):
            if 0 < digit < first_partial:
                dims[(digit - 1) // count][(digit - 1) % count] = axis
        reducer = self.reducers[digits[partial[0]] - first_partial] if partial else "sum"
        return tuple(tuple(own[place] for place in sorted(own)) for own in dims), partial, reducer


@lru_cache(maxsize=16)
def layout_space(axes: tuple[int, ...], rank: int, reducers: tuple[str, ...]) -> LayoutSpace:
    """Build the space once per mesh axes, rank and reducers (sorted, without duplicates).

    What is not partial lies as it does beside partial layouts, which are mostly asked for, too.
    """
    if not reducers:
        return _without_partial(layout_space(axes, rank, REDUCERS[:1]))
    digits = all_digits(len(axes), rank, len(reducers))
    places = Places.of(digits, 2 + rank * len(axes) + len(reducers))
    moves = Moves(axes, rank, len(reducers), digits, places)
    source, place, kind, group, target, from_dim, to_dim = moves.all()
    order = np.argsort(source * (int(place.max(initial=0)) + 1) + place)
    source, target, kind, group = source[order], target[order], kind[order], group[order]
    charged = np.where(kind < len(LOCAL_KINDS), target, source)
    whole, pieces = np.unique(moves.splits.prod(axis=1), return_inverse=True)
    number = (kind * len(moves.groups) + group) * whole.size + pieces.ravel()[charged]
    there = np.flatnonzero(np.bincount(number))
    cost_class = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    cost_class[there] = np.arange(there.size)
    classes = tuple(
        (KINDS[step // len(moves.groups)], moves.groups[step % len(moves.groups)], count)
        for step, count in zip(
            (there // whole.size).tolist(), whole[there % whole.size].tolist(), strict=True
        )
    )
    return LayoutSpace(
        axes,
        reducers,
        digits,
        moves.splits,
        source,
        target,
        cost_class[number],
        from_dim[order].astype(np.int8),
        to_dim[order].astype(np.int8),
        classes,
        there,
        places,
    )


def _without_partial(space: LayoutSpace) -> LayoutSpace:
    """The part of a space in which nothing is partial."""
    first_partial = 1 + space.rank * len(space.axes)
    whole = (space.digits < first_partial).all(axis=1)
    number = np.cumsum(whole) - 1
    kept = np.flatnonzero(whole[space.source] & whole[space.target])
    cost_class = space.cost_class[kept]
    there = np.flatnonzero(np.bincount(cost_class, minlength=len(space.classes)))
    new_class = np.zeros(len(space.classes), np.int64)
    new_class[there] = np.arange(there.size)
    digits = space.digits[whole]
    return LayoutSpace(
        space.axes,
        (),
        digits,
        space.splits[whole],
        number[space.source[kept]],
        number[space.target[kept]],
        new_class[cost_class],
        space.from_dim[kept],
        space.to_dim[kept],
        tuple([space.classes[old] for old in there.tolist()]),
        space.class_numbers[there],
        Places.of(digits, 1 + first_partial),
    )


@lru_cache(maxsize=256)
def _exchanged_groups(axes: int, one: int, other: int) -> Int64Array:
    """int64[kinds, groups], what the groups of each kind of step become when two axes change
    places; where order has no effect they are named in ascending order."""
    groups = arrangements(tuple(range(axes)))
    number = {group: place for place, group in enumerate(groups)}
    swap = {one: other, other: one}
    swapped = [tuple(swap.get(axis, axis) for axis in group) for group in groups]
    ordered = [number[group] for group in swapped]
    unordered = [number[tuple(sorted(group))] for group in swapped]
    return np.array([unordered if kind in _UNORDERED else ordered for kind in KINDS], np.int64)


@lru_cache(maxsize=16)
def _ascending_groups(axes: int) -> Int64Array:
    """int64[groups], what every group becomes when its axes are named in ascending order."""
    groups = arrangements(tuple(range(axes)))
    number = {group: place for place, group in enumerate(groups)}
    return np.array([number[tuple(sorted(group))] for group in groups], np.int64)
