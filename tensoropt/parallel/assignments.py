"""All configurations of an operator as one array, and layouts encoded as integers.

`tensoropt.parallel.configuration` handles one configuration at a time. The search compares
thousands of configurations of an operator, so this module computes the slots of all of them at
once with NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array, Int64Array
from tensoropt.errors import LayoutError
from tensoropt.parallel.configuration import Configuration, piece_limits
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.derivation import Derivation

__all__ = [
    "NO_INDEX",
    "SlotCodes",
    "assignment_of",
    "assignments",
    "code_partial",
    "code_states",
    "codes_of_slices",
    "configuration_of",
    "decode",
    "encode",
    "index_pieces",
    "input_codes",
    "only_added_up",
    "output_codes",
    "partial_reducers",
    "renumbered",
    "split_dims",
    "splits_of",
    "unlike_rows",
]


NO_INDEX = -1
"""Entry of an axis that splits no index: the devices along it repeat the same computation."""

_LARGEST_KEY = 2**62  # keys of `unlike_rows` stay below it, so that they fit int64

# An integer code of a layout has `_BITS` bits for each mesh axis, which hold the state of the axis:
# `_WHOLE` (the axis splits nothing), 1 + d (it splits dimension d), or `_PARTIAL` plus the number
# of a reducer (values are partial over the axis).
_PARTIAL = 32
_BITS = 6
_WHOLE = 0


@dataclass(frozen=True, slots=True, eq=False)
class SlotCodes:
    """The slot of one tensor at one operator under every configuration, with encoded layouts.

    In every slot a dimension lists its axes in ascending order, so the state of each axis
    identifies the layout. `encode` and `decode` convert between layouts and codes.

    Attributes:
        forward: int64[L], the layout of the tensor in each distinct slot.
        gradient: int64[L], the layout of its gradient in each distinct slot.
        of_option: int64[K], the number of the slot under each configuration.
    """

    forward: Int64Array
    gradient: Int64Array
    of_option: Int64Array

    def swapped(self) -> SlotCodes:
        """Return the slots of the tensor's gradient."""
        return SlotCodes(self.gradient, self.forward, self.of_option)

    def without_gradient(self) -> SlotCodes:
        """Return the slots without gradients: slots that differ only in the gradient are merged."""
        forward, merged = np.unique(self.forward, return_inverse=True)
        return SlotCodes(forward, forward, merged.ravel()[self.of_option])


def assignments(
    derivation: Derivation, mesh: Mesh, offered: frozenset[int] = frozenset()
) -> Int8Array:
    """Return the index that each axis splits under each valid configuration, as int8[K, axes].

    The arguments and the order are those of `tensoropt.parallel.configuration.configurations`.
    """
    pairs = ((1, 0), *piece_limits(derivation, mesh, offered))  # the first is for NO_INDEX
    limits, most = np.array(pairs, np.int64).T
    rows = np.zeros((1, 0), dtype=np.int8)
    pieces = np.ones((1, limits.size), dtype=np.int64)
    for size in mesh.axes:
        valid = (limits % (pieces * size) == 0) | (pieces * size <= most)
        valid[:, 0] = True
        parents, chosen = np.nonzero(valid)
        rows = np.concatenate([rows[parents], (chosen - 1).astype(np.int8)[:, None]], axis=1)
        pieces = pieces[parents]
        split = np.flatnonzero(chosen)
        pieces[split, chosen[split]] *= size
    for number, index in enumerate(derivation.indices):
        if index.along_all:
            rows = rows[np.isin((rows == number).sum(axis=1), (0, len(mesh.axes)))]
    if mesh.shares is not None:
        rows = rows[[_has_elements(row, derivation, mesh) for row in rows.tolist()]]
    return rows


def _has_elements(row: Sequence[int], derivation: Derivation, mesh: Mesh) -> bool:
    """Whether every device gets an element of each split index of a configuration."""
    splits = splits_of(row, len(derivation.indices))
    return not any(
        mesh.has_empty(index.extent, axes)
        for index, axes in zip(derivation.indices, splits, strict=True)
    )


def assignment_of(configuration: Configuration, mesh: Mesh) -> Int8Array:
    """Return one configuration in the form of `assignments`, as int8[1, axes]."""
    row = np.full((1, len(mesh.axes)), NO_INDEX, dtype=np.int8)
    for index, axes in enumerate(configuration.splits):
        row[0, list(axes)] = index
    return row


def configuration_of(row: Int8Array, indices: int, kept: str = "both") -> Configuration:
    """Return one row of `assignments` as a configuration of an operator with ``indices``
    indices."""
    return Configuration(splits_of(row.tolist(), indices), kept)


def splits_of(row: Sequence[int], indices: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each index, the axes that split it. ``row`` has the index that each axis
    splits."""
    splits: list[tuple[int, ...]] = [()] * indices
    for axis, index in enumerate(row):
        if index != NO_INDEX:
            splits[index] += (axis,)
    return tuple(splits)


def index_pieces(assigned: Int8Array, indices: int, mesh: Mesh) -> Int64Array:
    """Return the number of pieces of each index under each configuration.

    The result is int64[K, indices + 1]. Its last column is 1 and belongs to `NO_INDEX`.
    """
    pieces = np.ones((len(assigned), indices + 1), dtype=np.int64)
    rows = np.arange(len(assigned))
    for axis, size in enumerate(mesh.axes):
        pieces[rows, assigned[:, axis]] *= size
    pieces[:, -1] = 1
    return pieces


def unlike_rows(table: Int8Array | Int64Array) -> tuple[Int64Array, Int64Array]:
    """Find the distinct rows of a table of integers with R rows.

    Returns:
        int64[U], the first row of each kind, and int64[R], the kind of each row.
    """
    # Rows are compared by one integer key each; `kinds` bounds the keys.
    key, kinds = np.zeros(len(table), np.int64), 1
    for column in table.T:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        values: Int64Array = column.astype(np.int64) - low
        if kinds * span > _LARGEST_KEY:  # number the distinct keys and values: at most R of each
            key = np.unique(key, return_inverse=True)[1].ravel()
            values = np.unique(values, return_inverse=True)[1].ravel()
            kinds, span = int(key.max(initial=0)) + 1, int(values.max(initial=0)) + 1
        key, kinds = key * span + values, kinds * span
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    return first, of_row.ravel()


def input_codes(derivation: Derivation, assigned: Int8Array, number: int) -> SlotCodes:
    """Return `tensoropt.parallel.configuration.input_slot` of every configuration."""
    forward, gradient = _tables(derivation, derivation.inputs[number])
    for position, index in enumerate(derivation.indices):
        if number in index.partial_inputs:
            forward[position] = _PARTIAL + REDUCERS.index("sum")
        elif forward[position] == _WHOLE:
            gradient[position] = _PARTIAL
    return _slots(forward, gradient, assigned)


def output_codes(derivation: Derivation, assigned: Int8Array, number: int) -> SlotCodes:
    """Return `tensoropt.parallel.configuration.output_slot` of every configuration.

    Raises:
        LayoutError: if a configuration splits indices with different reducers.
    """
    forward, gradient = _tables(derivation, derivation.outputs[number])
    for position, index in enumerate(derivation.indices):
        if index.reducer is not None:
            forward[position] = _PARTIAL + REDUCERS.index(index.reducer)
        elif number in index.partial_outputs:
            forward[position] = _PARTIAL + REDUCERS.index("sum")
        elif forward[position] == _WHOLE and not index.spelled_out:
            gradient[position] = _PARTIAL
    states = forward[assigned]
    lowest = np.where(states >= _PARTIAL, states, _PARTIAL + len(REDUCERS)).min(axis=1, initial=99)
    if (states > lowest[:, None]).any():
        reducers = sorted({index.reducer for index in derivation.indices if index.reducer})
        raise LayoutError(
            f"all split indices of an output have one reducer. Got {' and '.join(reducers)} for "
            f"{derivation.op_type}."
        )
    return _slots(forward, gradient, assigned)


def encode(layout: Layout) -> int:
    """Return the code of a layout.

    Raises:
        LayoutError: if the axes of a dimension are not ascending.
    """
    code = 0
    for dim, axes in enumerate(layout.dims):
        if list(axes) != sorted(axes):
            raise LayoutError(
                f"the axes of each dimension are in ascending order in an encoded layout. Got "
                f"{layout}."
            )
        for axis in axes:
            code |= (1 + dim) << (_BITS * axis)
    for axis in layout.partial:
        code |= (_PARTIAL + REDUCERS.index(layout.reducer)) << (_BITS * axis)
    return code


def decode(code: int, rank: int, mesh: Mesh) -> Layout:
    """Return the layout of a code, for a tensor of ``rank`` dimensions."""
    dims: list[list[int]] = [[] for _ in range(rank)]
    partial: list[int] = []
    reducer = REDUCERS[0]
    for axis in range(len(mesh.axes)):
        state = (code >> (_BITS * axis)) & ((1 << _BITS) - 1)
        if state >= _PARTIAL:
            partial.append(axis)
            reducer = REDUCERS[state - _PARTIAL]
        elif state != _WHOLE:
            dims[state - 1].append(axis)
    return Layout(tuple(map(tuple, dims)), tuple(partial), reducer)


def partial_reducers(codes: Int64Array, axes: int) -> Int64Array:
    """Return the number of each layout's reducer in `REDUCERS`, -1 if nothing is partial."""
    states = code_states(codes, axes)
    numbers: Int64Array = np.maximum(states.max(axis=1, initial=0) - _PARTIAL, -1)
    return numbers


def code_states(codes: Int64Array, axes: int) -> Int64Array:
    """Return the state of each axis in each layout, as int64[L, axes] (see `_PARTIAL`)."""
    states: Int64Array = (codes[:, None] >> (_BITS * np.arange(axes))) & ((1 << _BITS) - 1)
    return states


def code_partial(reducer: str) -> int:
    """Return the state of an axis over which values are partial with this reducer."""
    return _PARTIAL + REDUCERS.index(reducer)


def renumbered(codes: Int64Array, axes: int, dims: Sequence[int]) -> Int64Array:
    """Return the codes after dimension d of each layout has become dimension ``dims[d]``.

    An entry -1 of ``dims`` drops the dimension. The code of a layout is -1 if it splits a dimension
    that is dropped.
    """
    table = np.arange(1 << _BITS)
    table[1 : 1 + len(dims)] = np.array(dims, np.int64) + 1
    states = code_states(codes, axes)
    new = table[states]
    drops_split = ((new == _WHOLE) & (states != _WHOLE)).any(axis=1)
    result: Int64Array = np.where(drops_split, -1, (new << (_BITS * np.arange(axes))).sum(axis=1))
    return result


def codes_of_slices(codes: Int64Array, axes: int) -> Int64Array:
    """Return the layouts of the slices of sparse gradients, from the layouts of dense gradients.

    Every device holds all rows of the slices. Axes over which the dense gradient is partial
    replicate the slices.
    """
    states = code_states(codes, axes)
    states[(states == 1) | (states >= _PARTIAL)] = _WHOLE
    slices: Int64Array = (states << (_BITS * np.arange(axes))).sum(axis=1)
    return slices


def split_dims(codes: Int64Array, axes: int, numbers: Sequence[int]) -> Int8Array:
    """Return the entry of ``numbers`` for the dimension that each axis splits, as int8[L, axes].

    ``numbers`` has an entry for each dimension. Axes that split no dimension get `NO_INDEX`.
    """
    states = code_states(codes, axes)
    table = np.full(1 << _BITS, NO_INDEX, np.int8)
    table[1 : 1 + len(numbers)] = numbers
    split: Int8Array = table[states]
    return split


def _tables(
    derivation: Derivation, numbers: tuple[int | None, ...]
) -> tuple[Int64Array, Int64Array]:
    """Return the forward and the gradient state of an axis, by the index that the axis splits.

    ``numbers`` has, for each dimension of the tensor, the index that lies along it.
    """
    forward = np.full(len(derivation.indices) + 1, _WHOLE, dtype=np.int64)
    for dim, index in enumerate(numbers):
        if index is None:
            continue
        if forward[index] != _WHOLE:
            raise LayoutError(
                f"an index lies along at most one dimension of a tensor. Got {numbers} for "
                f"{derivation.op_type}."
            )
        forward[index] = 1 + dim
    return forward, forward.copy()


def _slots(forward: Int64Array, gradient: Int64Array, assigned: Int8Array) -> SlotCodes:
    axes = assigned.shape[1]
    shifts = _BITS * np.arange(axes)
    forward_codes: Int64Array = (forward[assigned] << shifts).sum(axis=1)
    gradient_codes: Int64Array = (gradient[assigned] << shifts).sum(axis=1)
    pairs = _pairs(forward_codes, gradient_codes, axes)
    _, first, of_option = np.unique(pairs, return_index=True, return_inverse=True)
    return SlotCodes(forward_codes[first], gradient_codes[first], of_option.ravel())


def _pairs(first: Int64Array, second: Int64Array, axes: int) -> Int64Array:
    """Return an integer for each pair of codes. The integers are ordered as the pairs are."""
    if 2 * _BITS * axes < 63:
        return (first << (_BITS * axes)) | second
    first_ranks = np.unique(first, return_inverse=True)[1].ravel()
    second_ranks = np.unique(second, return_inverse=True)[1].ravel()
    pairs: Int64Array = first_ranks * (first.size + 1) + second_ranks
    return pairs


def only_added_up(sources: Int64Array, targets: Int64Array, axes: int) -> BoolArray:
    """Return whether resharding each source to each target only reduces partial values.

    The result is bool[S, T].
    """
    states = code_states(sources, axes)
    partial = states >= _PARTIAL
    whole = (np.where(partial, _WHOLE, states) << (_BITS * np.arange(axes))).sum(axis=1)
    only_reduced: BoolArray = partial.any(axis=1)[:, None] & (whole[:, None] == targets)
    return only_reduced
