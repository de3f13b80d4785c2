"""All layouts of a tensor of one rank on one mesh, and the single collectives between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding.step import KINDS, LOCAL_KINDS, ReshardStep

__all__ = ["LayoutSpace", "layout_space"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], str]
_UNORDERED = ("mask", "allreduce")  # kinds for which the order of axes has no effect
_NONE = -1  # a dimension that a kind does without

# Numbers of layouts are looked up in a table up to this size, else by bisection.
_LARGEST_TABLE = 2**22


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
    from_dim: npt.NDArray[np.int8]
    to_dim: npt.NDArray[np.int8]
    classes: tuple[tuple[str, tuple[int, ...], int], ...]
    class_numbers: Int64Array
    _places: _Places
    _keys: list[_Key] = field(default_factory=list)
    _nodes: dict[_Key, int] = field(default_factory=dict)
    _permuted: dict[tuple[int, ...], Int64Array] = field(default_factory=dict)

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
            None if from_dim == _NONE else from_dim,
            None if to_dim == _NONE else to_dim,
            reducer.reducer if reducer else None,
        )

    def permuted(self, order: tuple[int, ...]) -> Int64Array:
        """[V], the nodes after the tensor's dimensions are transposed to ``order``."""
        if order not in self._permuted:
            count = len(self.axes)
            moved = np.arange(2 + self.rank * count + len(self.reducers))
            for dim, old in enumerate(order):
                moved[1 + old * count : 1 + (old + 1) * count] = np.arange(count) + 1 + dim * count
            self._permuted[order] = self.nodes_of(moved[self.digits])
        return self._permuted[order]

    def exchanged_classes(self, one: int, other: int) -> Int64Array:
        """The cost class that every class becomes when two axes of equal size are exchanged."""
        several, counts = _exchanged_groups(len(self.axes), one, other), self._counts
        step, pieces = np.divmod(self.class_numbers, counts)
        kind, group = np.divmod(step, several.shape[1])
        numbers = (kind * several.shape[1] + several[kind, group]) * counts + pieces
        found: Int64Array = np.searchsorted(self.class_numbers, numbers)
        return found

    @property
    def _counts(self) -> int:
        """How many different counts of pieces there are."""
        return len(set(self.splits.prod(axis=1).tolist()))

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


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where layouts are, by one number for all their digits.

    Attributes:
        weights: int64[axes], what a digit counts in that number.
        numbers: int64[V], of all layouts, ascending.
        order: int64[V], their nodes.
        table: int64[all numbers], the node of each, where there are not too many.
    """

    weights: Int64Array
    numbers: Int64Array
    order: Int64Array
    table: Int64Array | None

    @classmethod
    def of(cls, digits: Int64Array, base: int) -> _Places:
        weights = base ** np.arange(digits.shape[1], dtype=np.int64)
        numbers = digits @ weights
        order = np.argsort(numbers)
        table = None
        if base ** digits.shape[1] <= _LARGEST_TABLE:
            table = np.full(base ** digits.shape[1], -1, np.int64)
            table[numbers] = np.arange(len(numbers))
        return cls(weights, numbers[order], order, table)

    def nodes(self, numbers: Int64Array) -> Int64Array:
        if self.table is not None:
            known: Int64Array = self.table[numbers]
            return known
        found = np.minimum(np.searchsorted(self.numbers, numbers), self.numbers.size - 1)
        nodes: Int64Array = np.where(self.numbers[found] == numbers, self.order[found], -1)
        return nodes


@lru_cache(maxsize=16)
def layout_space(axes: tuple[int, ...], rank: int, reducers: tuple[str, ...]) -> LayoutSpace:
    """Build the space once per mesh axes, rank and reducers (sorted, without duplicates)."""
    digits = _digits(len(axes), rank, len(reducers))
    places = _Places.of(digits, 2 + rank * len(axes) + len(reducers))
    moves = _Moves(axes, rank, len(reducers), digits, places)
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


def _digits(axes: int, rank: int, reducers: int) -> Int64Array:
    """Every layout: unused axes are replicated or partial, the others lie in order on dims."""
    blocks = [np.zeros((0, axes), np.int64)]
    for count in range(axes + 1):
        permutations = list(itertools.permutations(range(axes), count))
        used = np.array(permutations, np.int64).reshape(len(permutations), count)
        unused = np.array([sorted({*range(axes)} - {*row}) for row in permutations], np.int64)
        runs = list(_cuts(count, rank, axes))
        cuts = np.array(runs, np.int64).reshape(len(runs), count)
        left = axes - count
        options = np.zeros((1 + reducers * (2**left - 1), left), np.int64)
        subsets = [
            (reducer, group)
            for reducer in range(reducers)
            for group in _subsets(tuple(range(left)))
        ]
        for row, (reducer, group) in enumerate(subsets):
            options[1 + row, list(group)] = 1 + rank * axes + reducer
        block = np.zeros((len(used), len(cuts), len(options), axes), np.int64)
        for place in range(count):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, used[:, place, None, None]] = cuts[:, place, None]
        for place in range(left):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, unused[:, place, None, None]] = options[:, place]
        blocks.append(block.reshape(len(used) * len(cuts) * len(options), axes))
    return np.concatenate(blocks)


def _cuts(count: int, rank: int, axes: int) -> Iterator[list[int]]:
    """Digits for the ways to cut a sequence of axes into ``rank`` runs, empty ones included."""
    if rank == 0:
        if not count:
            yield []
        return
    for ends in itertools.combinations_with_replacement(range(count + 1), rank - 1):
        bounds = (0, *ends, count)
        yield [
            1 + dim * axes + place
            for dim in range(rank)
            for place in range(bounds[dim + 1] - bounds[dim])
        ]


_TARGET = 4  # the place of the target among what `_Moves` says of a step


class _Moves:
    """The steps from all layouts, many at a time: arithmetic on the layouts' numbers.

    Attributes:
        splits: int64[V, rank], into how many pieces each dimension falls.
        groups: the axes that a step may concern, in all orders.
    """

    def __init__(
        self, axes: tuple[int, ...], rank: int, reducers: int, digits: Int64Array, places: _Places
    ) -> None:
        count = len(axes)
        self._axes, self._rank, self._reducers = count, rank, reducers
        self._places = places
        self._number = digits @ places.weights
        self._digits = digits
        self._first_partial = 1 + rank * count
        self._free = digits == 0
        self._partial = digits >= self._first_partial
        self._reducer = digits.max(axis=1, initial=0) - self._first_partial
        self.splits = np.ones((len(digits), rank), np.int64)
        self._lengths = np.zeros((len(digits), rank), np.int64)
        self._at = np.zeros((len(digits), rank, count), np.int64)
        for axis, size in enumerate(axes):
            on = np.flatnonzero(~self._free[:, axis] & ~self._partial[:, axis])
            dim, place = np.divmod(digits[on, axis] - 1, max(count, 1))
            self.splits[on, dim] *= size
            self._lengths[on, dim] += 1
            self._at[on, dim, place] = axis
        self.groups = _arrangements(tuple(range(count)))
        self._group_of = {group: number for number, group in enumerate(self.groups)}
        # By the numbers of the axes, one digit each in base axes + 1, 0 for what is short of them.
        self._group_table = np.zeros((count + 1) ** count, np.int64)
        for number, group in enumerate(self.groups):
            code = sum((axis + 1) * (count + 1) ** place for place, axis in enumerate(group))
            self._group_table[code] = number
        self._parts: list[tuple[Int64Array, ...]] = []

    def all(self) -> tuple[Int64Array, ...]:
        """Of every step its source, its place among the steps from there, its kind, group, target
        and dimensions. Local steps come first, then those that bring pieces together, by
        dimension, then those that reduce: the order that breaks ties."""
        self._parts = []
        several, steps = len(self.groups), self._axes * (self._rank + 1)
        local = (self._rank + self._reducers) * several
        for dim in range(self._rank):
            for count in range(1, self._axes + 1):
                self._taken(dim, count, local + dim * steps + (count - 1) * (self._rank + 1))
        reducing = local + self._rank * steps
        for subset in _subsets(tuple(range(self._axes))):
            orders = [self._group_of[order] for order in itertools.permutations(subset)]
            self._local(list(subset), np.array(orders))
            self._reduced(list(subset), np.array(orders), reducing)
        counts = [part[_TARGET].size for part in self._parts]
        columns = np.empty((7, sum(counts)), np.int64)
        for part, count, end in zip(self._parts, counts, itertools.accumulate(counts), strict=True):
            for column, values in zip(columns, part, strict=True):
                column[end - count : end].reshape(part[_TARGET].shape)[...] = values
        return tuple(columns)

    def _local(self, subset: list[int], orders: Int64Array) -> None:
        """Keep a piece of a dimension; or let all but one device forget the value."""
        free = self._free[:, subset].all(axis=1)
        source = np.flatnonzero(free)
        dims = np.arange(self._rank)
        place = dims[:, None] * len(self.groups) + orders
        self._add("slice", source, place, orders, self._appended(source, orders), to_dim=dims)
        weight = int(self._places.weights[subset].sum())
        for reducer in range(self._reducers):
            alike = free & (~self._partial.any(axis=1) | (self._reducer == reducer))
            source = np.flatnonzero(alike)
            gained = np.full((source.size, 1, 1), (self._first_partial + reducer) * weight)
            place = (self._rank + reducer) * len(self.groups) + orders[:1]
            self._add("mask", source, place, orders[:1], gained)

    def _taken(self, dim: int, count: int, place: int) -> None:
        """Put the last pieces of a dimension together; or cut another one instead."""
        source = np.flatnonzero(self._lengths[:, dim] >= count)
        start = self._lengths[source, dim] - count
        weights, lengths = self._places.weights, self._lengths[source]
        lost = np.zeros(source.size, np.int64)
        gained = np.zeros((source.size, self._rank), np.int64)
        code = np.zeros(source.size, np.int64)
        for number in range(count):
            axis = self._at[source, dim, start + number]
            lost += (1 + dim * self._axes + start + number) * weights[axis]
            dims = 1 + np.arange(self._rank) * self._axes
            gained += (dims + lengths + number) * weights[axis][:, None]
            code += (axis + 1) * (self._axes + 1) ** number
        group = self._group_table[code][:, None, None]
        here = np.full(1, place)
        self._add("allgather", source, here, group, -lost[:, None, None], dim)
        others = np.array([other for other in range(self._rank) if other != dim], np.int64)
        moved = (gained[:, others] - lost[:, None])[:, :, None]
        self._add("alltoall", source, place + 1 + others[:, None], group, moved, dim, others)

    def _reduced(self, subset: list[int], orders: Int64Array, place: int) -> None:
        """Bring partial values together, everywhere or piece by piece."""
        source = np.flatnonzero(self._partial[:, subset].all(axis=1))
        lost = (self._digits[source][:, subset] @ self._places.weights[subset])[:, None, None]
        self._add("allreduce", source, place + orders[:1], orders[:1], -lost)
        dims = np.arange(self._rank)
        scattered = place + len(self.groups) + orders * self._rank + dims[:, None]
        gained = self._appended(source, orders) - lost
        self._add("reduce_scatter", source, scattered, orders, gained, to_dim=dims)

    def _appended(self, source: Int64Array, orders: Int64Array) -> Int64Array:
        """[sources, dims, orders], what layouts' numbers gain by free axes that come last on a
        dimension."""
        weights = self._places.weights
        groups = np.array([self.groups[order] for order in orders.tolist()])
        after = weights[groups] @ np.arange(groups.shape[1])
        first = 1 + np.arange(self._rank) * self._axes + self._lengths[source]
        gained: Int64Array = first[:, :, None] * int(weights[groups[0]].sum()) + after
        return gained

    def _add(
        self,
        kind: str,
        source: Int64Array,
        place: Int64Array,
        group: Int64Array,
        gained: Int64Array,
        from_dim: int = _NONE,
        to_dim: Int64Array | None = None,
    ) -> None:
        """Steps from each source, [sources, dims, orders] as ``gained``."""
        target = self._places.nodes(self._number[source][:, None, None] + gained)
        dims = np.full(1, _NONE) if to_dim is None else to_dim
        kinds, froms = np.full(1, KINDS.index(kind)), np.full(1, from_dim)
        self._parts.append(
            (source[:, None, None], place, kinds, group, target, froms, dims[:, None])
        )


@lru_cache(maxsize=256)
def _exchanged_groups(axes: int, one: int, other: int) -> Int64Array:
    """int64[kinds, groups], what the groups of each kind of step become when two axes change
    places; where order has no effect they are named in ascending order."""
    groups = _arrangements(tuple(range(axes)))
    number = {group: place for place, group in enumerate(groups)}
    swap = {one: other, other: one}
    swapped = [tuple(swap.get(axis, axis) for axis in group) for group in groups]
    ordered = [number[group] for group in swapped]
    unordered = [number[tuple(sorted(group))] for group in swapped]
    return np.array([unordered if kind in _UNORDERED else ordered for kind in KINDS], np.int64)


def _subsets(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets, each in the given order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(axes, n) for n in counts))


def _arrangements(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets in every order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.permutations(axes, n) for n in counts))
