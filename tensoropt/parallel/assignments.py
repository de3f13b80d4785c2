"""All configurations of an operator as one array, and the slots that they give it as numbers.

What `tensoropt.parallel.configuration` says of one configuration at a time is said here of all of
them at once, for the search, which asks it of thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array, Int64Array
from tensoropt.errors import LayoutError
from tensoropt.parallel.configuration import Configuration, divisible
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
    "replicated_codes",
    "split_dims",
    "splits_of",
    "unlike_rows",
]


NO_INDEX = -1
"""The index that an axis of redundant computation splits."""

_MOST_KINDS = 2**62

# What an axis does to a tensor: nothing, split dimension d (1 + d), or hold partial values.
_PARTIAL = 32
_BITS = 6
_WHOLE = 0


@dataclass(frozen=True, slots=True, eq=False)
class SlotCodes:
    """The slot of one tensor at one operator under every configuration, as numbers of layouts.

    A layout whose dimensions name their axes in ascending order, as every slot's do, is a number:
    what each axis does, in so many bits. `encode` and `decode` go between the two.

    Attributes:
        forward, gradient: int64[L], the layouts of each different slot.
        of_option: int64[K], the slot of every configuration.
    """

    forward: Int64Array
    gradient: Int64Array
    of_option: Int64Array

    def swapped(self) -> SlotCodes:
        """The slots of the tensor's gradient."""
        return SlotCodes(self.gradient, self.forward, self.of_option)

    def without_gradient(self) -> SlotCodes:
        """The slots where no gradient comes back: those that differ in it alone are one."""
        forward, merged = np.unique(self.forward, return_inverse=True)
        return SlotCodes(forward, forward, merged.ravel()[self.of_option])


def assignments(derivation: Derivation, mesh: Mesh) -> Int8Array:
    """int8[K, axes]: the index that every axis splits under every valid configuration.

    In the order of `tensoropt.parallel.configuration.configurations`.
    """
    limits = np.array([1, *divisible(derivation)], dtype=np.int64)  # of NO_INDEX first
    found = np.zeros((1, 0), dtype=np.int8)
    pieces = np.ones((1, limits.size), dtype=np.int64)
    for size in mesh.axes:
        valid = limits % (pieces * size) == 0
        valid[:, 0] = True
        rows, chosen = np.nonzero(valid)
        found = np.concatenate([found[rows], (chosen - 1).astype(np.int8)[:, None]], axis=1)
        pieces = pieces[rows]
        split = np.flatnonzero(chosen)
        pieces[split, chosen[split]] *= size
    for number, index in enumerate(derivation.indices):
        if index.along_all:
            found = found[np.isin((found == number).sum(axis=1), (0, len(mesh.axes)))]
    return found


def assignment_of(configuration: Configuration, mesh: Mesh) -> Int8Array:
    """int8[1, axes]: one configuration in the form of `assignments`."""
    found = np.full((1, len(mesh.axes)), NO_INDEX, dtype=np.int8)
    for index, axes in enumerate(configuration.splits):
        found[0, list(axes)] = index
    return found


def configuration_of(row: Int8Array, indices: int, kept: str = "both") -> Configuration:
    """One row of `assignments` as a configuration of so many indices."""
    return Configuration(splits_of(row.tolist(), indices), kept)


def splits_of(row: Sequence[int], indices: int) -> tuple[tuple[int, ...], ...]:
    """Per index the axes that split it, from the index that every axis splits."""
    splits: list[tuple[int, ...]] = [()] * indices
    for axis, index in enumerate(row):
        if index != NO_INDEX:
            splits[index] += (axis,)
    return tuple(splits)


def index_pieces(assigned: Int8Array, indices: int, mesh: Mesh) -> Int64Array:
    """int64[K, indices + 1]: into how many pieces each index falls; the last is for none."""
    pieces = np.ones((len(assigned), indices + 1), dtype=np.int64)
    rows = np.arange(len(assigned))
    for axis, size in enumerate(mesh.axes):
        pieces[rows, assigned[:, axis]] *= size
    pieces[:, -1] = 1
    return pieces


def unlike_rows(table: Int8Array | Int64Array) -> tuple[Int64Array, Int64Array]:
    """The different rows of a table of integers, [R, columns].

    Returns:
        int64[U], where the first of each kind is, and int64[R], the kind of every row.
    """
    key, kinds = np.zeros(len(table), np.int64), 1
    for column in table.T:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        values: Int64Array = column.astype(np.int64) - low
        if kinds * span > _MOST_KINDS:  # number what there is, which is at most R of each
            key = np.unique(key, return_inverse=True)[1].ravel()
            values = np.unique(values, return_inverse=True)[1].ravel()
            kinds, span = int(key.max(initial=0)) + 1, int(values.max(initial=0)) + 1
        key, kinds = key * span + values, kinds * span
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    return first, of_row.ravel()


def input_codes(derivation: Derivation, assigned: Int8Array, number: int) -> SlotCodes:
    """`tensoropt.parallel.configuration.input_slot` of every configuration."""
    forward, gradient = _tables(derivation, derivation.inputs[number])
    for place, index in enumerate(derivation.indices):
        if number in index.partial_inputs:
            forward[place] = _PARTIAL + REDUCERS.index("sum")
        elif forward[place] == _WHOLE:
            gradient[place] = _PARTIAL
    return _slots(forward, gradient, assigned)


def output_codes(derivation: Derivation, assigned: Int8Array, number: int) -> SlotCodes:
    """`tensoropt.parallel.configuration.output_slot` of every configuration.

    Raises:
        LayoutError: if indices with different reducers are split.
    """
    forward, gradient = _tables(derivation, derivation.outputs[number])
    for place, index in enumerate(derivation.indices):
        if index.reducer is not None:
            forward[place] = _PARTIAL + REDUCERS.index(index.reducer)
        elif number in index.partial_outputs:
            forward[place] = _PARTIAL + REDUCERS.index("sum")
        elif forward[place] == _WHOLE and not index.spelled_out:
            gradient[place] = _PARTIAL
    states = forward[assigned]
    lowest = np.where(states >= _PARTIAL, states, _PARTIAL + len(REDUCERS)).min(axis=1, initial=99)
    if (states > lowest[:, None]).any():
        reducers = sorted({index.reducer for index in derivation.indices if index.reducer})
        raise LayoutError(
            f"one reducer brings an output's pieces together. Got {' and '.join(reducers)} for "
            f"{derivation.op_type}."
        )
    return _slots(forward, gradient, assigned)


def replicated_codes(options: int) -> SlotCodes:
    """The slot of a tensor that every configuration replicates."""
    return SlotCodes(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(options, np.int64))


def encode(layout: Layout) -> int:
    """The number of a layout.

    Raises:
        LayoutError: if a dimension's axes are not ascending.
    """
    code = 0
    for dim, axes in enumerate(layout.dims):
        if list(axes) != sorted(axes):
            raise LayoutError(
                f"a layout that has a number names axes in ascending order. Got {layout}."
            )
        for axis in axes:
            code |= (1 + dim) << (_BITS * axis)
    for axis in layout.partial:
        code |= (_PARTIAL + REDUCERS.index(layout.reducer)) << (_BITS * axis)
    return code


def decode(code: int, rank: int, mesh: Mesh) -> Layout:
    """The layout of a number."""
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
    """Which of `REDUCERS` brings each layout's partial values together; -1 where none are."""
    states = code_states(codes, axes)
    found: Int64Array = np.maximum(states.max(axis=1, initial=0) - _PARTIAL, -1)
    return found


def code_states(codes: Int64Array, axes: int) -> Int64Array:
    """int64[L, axes]: 0, 1 + the dimension that an axis splits, or `code_partial`."""
    states: Int64Array = (codes[:, None] >> (_BITS * np.arange(axes))) & ((1 << _BITS) - 1)
    return states


def code_partial(reducer: str) -> int:
    """What an axis over which a layout is partial has in its number."""
    return _PARTIAL + REDUCERS.index(reducer)


def renumbered(codes: Int64Array, axes: int, dims: Sequence[int]) -> Int64Array:
    """The numbers of layouts whose dimensions become ``dims``; -1 where one that is split becomes
    -1, none."""
    table = np.arange(1 << _BITS)
    table[1 : 1 + len(dims)] = np.array(dims, np.int64) + 1
    states = code_states(codes, axes)
    new = table[states]
    lost = ((new == _WHOLE) & (states != _WHOLE)).any(axis=1)
    found: Int64Array = np.where(lost, -1, (new << (_BITS * np.arange(axes))).sum(axis=1))
    return found


def codes_of_slices(codes: Int64Array, axes: int) -> Int64Array:
    """Where the slices of a sparse gradient lie, from the layouts of the dense one: its rows are
    whole on every device, and so are they over axes of partial values."""
    states = code_states(codes, axes)
    states[(states == 1) | (states >= _PARTIAL)] = _WHOLE
    found: Int64Array = (states << (_BITS * np.arange(axes))).sum(axis=1)
    return found


def split_dims(codes: Int64Array, axes: int, numbers: Sequence[int]) -> Int8Array:
    """int8[L, axes]: which of ``numbers``, one for each dimension, an axis splits in each layout.

    Axes that replicate or hold partial values split `NO_INDEX`.
    """
    states = code_states(codes, axes)
    table = np.full(1 << _BITS, NO_INDEX, np.int8)
    table[1 : 1 + len(numbers)] = numbers
    found: Int8Array = table[states]
    return found


def _tables(
    derivation: Derivation, numbers: tuple[int | None, ...]
) -> tuple[Int64Array, Int64Array]:
    """What an axis does to a tensor forward and backward, by the index that it splits."""
    forward = np.full(len(derivation.indices) + 1, _WHOLE, dtype=np.int64)
    for dim, index in enumerate(numbers):
        if index is None:
            continue
        if forward[index] != _WHOLE:
            raise LayoutError(
                f"an index lies along one dimension of a tensor. Got {numbers} for "
                f"{derivation.op_type}."
            )
        forward[index] = 1 + dim
    return forward, forward.copy()


def _slots(forward: Int64Array, gradient: Int64Array, assigned: Int8Array) -> SlotCodes:
    axes = assigned.shape[1]
    shifts = _BITS * np.arange(axes)
    ones: Int64Array = (forward[assigned] << shifts).sum(axis=1)
    others: Int64Array = (gradient[assigned] << shifts).sum(axis=1)
    pairs = _pairs(ones, others, axes)
    _, first, of_option = np.unique(pairs, return_index=True, return_inverse=True)
    return SlotCodes(ones[first], others[first], of_option.ravel())


def _pairs(ones: Int64Array, others: Int64Array, axes: int) -> Int64Array:
    """A number for each pair of codes, in the order of the pairs."""
    if 2 * _BITS * axes < 63:
        return (ones << (_BITS * axes)) | others
    _, one = np.unique(ones, return_inverse=True)
    _, other = np.unique(others, return_inverse=True)
    found: Int64Array = one.ravel() * (ones.size + 1) + other.ravel()
    return found


def only_added_up(sources: Int64Array, targets: Int64Array, axes: int) -> BoolArray:
    """bool[S, T]: whether all that resharding from one layout to another does is to bring partial
    values together."""
    states = code_states(sources, axes)
    partial = states >= _PARTIAL
    whole = (np.where(partial, _WHOLE, states) << (_BITS * np.arange(axes))).sum(axis=1)
    found: BoolArray = partial.any(axis=1)[:, None] & (whole[:, None] == targets)
    return found
