"""All layouts of a tensor of one rank on one mesh, and the single collectives between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.resharding.numbering import NodeLookup, all_digits, arrangements
from tensoropt.parallel.resharding.step import KINDS, LOCAL_KINDS, ReshardStep
from tensoropt.parallel.resharding.step_table import NO_DIM, StepTable

__all__ = ["LayoutSpace", "layout_space"]

_Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], str]
_UNORDERED = ("mask", "allreduce")  # kinds of steps for which the order of axes has no effect


@dataclass(frozen=True, slots=True, eq=False)
class LayoutSpace:
    """The graph of layouts, in which resharding is a shortest path (TensorOpt, section 4.2).

    Nodes are the V layouts: every ordered assignment of mesh axes to dimensions, where an
    unassigned axis replicates or is partial. Edges are the E steps, in a fixed order, sorted by
    source. There is at most one edge from one layout to another. Nodes and edges do not depend on
    the tensor's shape.

    The cost of a step depends only on its class: its kind, its axes, and the number of pieces of
    the tensor before the step (after it for local steps).

    Attributes:
        axes: size of every mesh axis.
        reducers: reducers of the partial layouts. Without any there are no partial layouts.
        digits: [V, axes], the role of each axis: 0 if it is unused, 1 + dim * axes + position if it
            is at this position among the axes that split a dimension, 1 + rank * axes + r if the
            layout is partial over it by reducer r of ``reducers``.
        splits: [V, rank], the number of pieces of each dimension.
        source, target: [E], the layouts at the ends of each edge.
        cost_class: [E], index into ``classes``.
        from_dim, to_dim: [E], the dimensions of the step, -1 for none.
        classes: kind, axes and number of pieces of each class.
        class_numbers: [classes], ascending. Each combines the position of the kind in `KINDS`, of
            the axes among all ordered groups of axes, and of the pieces among all numbers of
            pieces.
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
    _lookup: NodeLookup
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
        """Dimensions, partial axes and reducer of every layout: the arguments of `Layout`."""
        if not self._keys:
            self._keys.extend(self._key(row) for row in self.digits.tolist())
        return self._keys

    @property
    def nodes(self) -> dict[_Key, int]:
        """The node of each key."""
        if not self._nodes:
            self._nodes.update((key, node) for node, key in enumerate(self.keys))
        return self._nodes

    def nodes_of(self, digits: Int64Array) -> Int64Array:
        """Return the nodes with these ``digits``, [..., axes], as int64[...]; -1 if there is
        none."""
        return self._lookup.nodes(digits @ self._lookup.weights)

    def node(self, layout: Layout) -> int:
        """Return the node of a layout that fits this mesh, rank and choice of reducers."""
        return self.nodes[layout.dims, layout.partial, layout.reducer]

    def layout(self, node: int) -> Layout:
        """Return the layout of a node."""
        return Layout(*self.keys[node])

    def step(self, edge: int) -> ReshardStep:
        """Return the step of an edge."""
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
        """Return the class that each class becomes when two axes of equal size are exchanged."""
        swapped, counts = _exchanged_groups(len(self.axes), one, other), self._counts
        step, pieces = np.divmod(self.class_numbers, counts)
        kind, group = np.divmod(step, swapped.shape[1])
        numbers = (kind * swapped.shape[1] + swapped[kind, group]) * counts + pieces
        classes: Int64Array = np.searchsorted(self.class_numbers, numbers)
        return classes

    def ascending_classes(self) -> Int64Array:
        """Return the class that each class becomes when its axes are put in ascending order."""
        ascending, counts = _ascending_groups(len(self.axes)), self._counts
        step, pieces = np.divmod(self.class_numbers, counts)
        kind, group = np.divmod(step, ascending.size)
        numbers = (kind * ascending.size + ascending[group]) * counts + pieces
        classes: Int64Array = np.searchsorted(self.class_numbers, numbers)
        return classes

    @property
    def _counts(self) -> int:
        """How many different numbers of pieces the layouts have."""
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
        ordered = tuple(tuple(axes[position] for position in sorted(axes)) for axes in dims)
        return ordered, partial, reducer


@lru_cache(maxsize=16)
def layout_space(axes: tuple[int, ...], rank: int, reducers: tuple[str, ...]) -> LayoutSpace:
    """Build the space of layouts for mesh axes, a rank and reducers (sorted, without duplicates).

    The space without partial layouts is cut out of the space with sums, which is usually needed
    too.
    """
    if not reducers:
        return _without_partial(layout_space(axes, rank, REDUCERS[:1]))
    digits = all_digits(len(axes), rank, len(reducers))
    lookup = NodeLookup.of(digits, 2 + rank * len(axes) + len(reducers))
    table = StepTable(axes, rank, len(reducers), digits, lookup)
    source, step_order, kind, group, target, from_dim, to_dim = table.all()
    order = np.argsort(source * (int(step_order.max(initial=0)) + 1) + step_order)
    source, target, kind, group = source[order], target[order], kind[order], group[order]
    piece_layout = np.where(kind < len(LOCAL_KINDS), target, source)  # whose pieces are counted
    counts, pieces = np.unique(table.splits.prod(axis=1), return_inverse=True)
    number = (kind * len(table.groups) + group) * counts.size + pieces.ravel()[piece_layout]
    class_numbers = np.flatnonzero(np.bincount(number))
    cost_class = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    cost_class[class_numbers] = np.arange(class_numbers.size)
    classes = tuple(
        (KINDS[step // len(table.groups)], table.groups[step % len(table.groups)], count)
        for step, count in zip(
            (class_numbers // counts.size).tolist(),
            counts[class_numbers % counts.size].tolist(),
            strict=True,
        )
    )
    return LayoutSpace(
        axes,
        reducers,
        digits,
        table.splits,
        source,
        target,
        cost_class[number],
        from_dim[order].astype(np.int8),
        to_dim[order].astype(np.int8),
        classes,
        class_numbers,
        lookup,
    )


def _without_partial(space: LayoutSpace) -> LayoutSpace:
    """Return the part of a space without partial layouts."""
    first_partial = 1 + space.rank * len(space.axes)
    whole = (space.digits < first_partial).all(axis=1)
    number = np.cumsum(whole) - 1
    kept = np.flatnonzero(whole[space.source] & whole[space.target])
    cost_class = space.cost_class[kept]
    kept_classes = np.flatnonzero(np.bincount(cost_class, minlength=len(space.classes)))
    new_class = np.zeros(len(space.classes), np.int64)
    new_class[kept_classes] = np.arange(kept_classes.size)
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
        tuple([space.classes[old] for old in kept_classes.tolist()]),
        space.class_numbers[kept_classes],
        NodeLookup.of(digits, 1 + first_partial),
    )


@lru_cache(maxsize=256)
def _exchanged_groups(axes: int, one: int, other: int) -> Int64Array:
    """Return the groups of axes after two axes are exchanged, as int64[kinds, groups].

    For kinds of steps without an order of axes, the group is sorted.
    """
    groups = arrangements(tuple(range(axes)))
    number = {group: position for position, group in enumerate(groups)}
    swap = {one: other, other: one}
    swapped = [tuple(swap.get(axis, axis) for axis in group) for group in groups]
    ordered = [number[group] for group in swapped]
    unordered = [number[tuple(sorted(group))] for group in swapped]
    return np.array([unordered if kind in _UNORDERED else ordered for kind in KINDS], np.int64)


@lru_cache(maxsize=16)
def _ascending_groups(axes: int) -> Int64Array:
    """Return the sorted group of every ordered group of axes, as int64[groups]."""
    groups = arrangements(tuple(range(axes)))
    number = {group: position for position, group in enumerate(groups)}
    return np.array([number[tuple(sorted(group))] for group in groups], np.int64)
