"""Slices, paddings, repetitions and reversals: dimensions that stay whole can be split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensoropt.tdl.any_size import along_known, by_index
from tensoropt.tdl.description import Piece, output_shape
from tensoropt.tdl.expression import Expression, Literal, Opaque, Operand
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE, along, at
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]


@describe("Slice", constant_operands=(1, 2), local=output_shape(2), any_size=along_known)
def slice_(x: Operand, _begin: Operand, _size: Operand, *, outputs: Outputs) -> Any:
    cut = {d for d, n in enumerate(outputs[0].shape) if n != x.shape[d]}
    return lambda *i: along("Slice", x, i, cut)


@dataclass(slots=True)
class _Strided:
    """The dimensions of a strided slice.

    Attributes:
        of_output: per output dimension its input dimension, None for a new dimension.
        cut: input dimensions that are not kept whole and in order.
        taken: per removed input dimension the number of the one element that is kept.
    """

    of_output: list[int | None] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    taken: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Masks:
    """TensorFlow's attributes, a bit per entry of the specification."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int


def _strided(
    shape: Sequence[int], begin: Operand, end: Operand, strides: Operand, masks: _Masks
) -> _Strided:
    form = _Strided()
    entries = len(begin.value)
    later_new = masks.new_axis
    d = 0

    def keep(dim: int) -> None:
        form.of_output.append(dim)

    for n in range(entries):
        bit = 1 << n
        later_new &= ~bit
        if masks.ellipsis & bit:
            rest = entries - n - 1 - (later_new >> (n + 1)).bit_count()
            for dim in range(d, len(shape) - rest):
                keep(dim)
            d = len(shape) - rest
        elif masks.new_axis & bit:
            form.of_output.append(None)
        elif masks.shrink_axis & bit:
            form.taken[d] = int(begin.value[n]) % shape[d]
            d += 1
        else:
            first = None if masks.begin & bit else int(begin.value[n])
            last = None if masks.end & bit else int(end.value[n])
            stride = int(strides.value[n])
            if slice(first, last, stride).indices(shape[d]) != (0, shape[d], 1):
                form.cut.add(d)
            keep(d)
            d += 1
    for dim in range(d, len(shape)):
        keep(dim)
    return form


@describe("StridedSlice", constant_operands=(1, 2, 3), any_size=along_known)
def strided_slice(
    x: Operand,
    begin: Operand,
    end: Operand,
    strides: Operand,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:
    masks = _Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    form = _strided(x.shape, begin, end, strides, masks)

    def element(*i: Expression) -> Expression:
        place: list[Any] = [Literal(form.taken.get(d, 0)) for d in range(x.rank)]
        within = []
        for index, dim in zip(i, form.of_output, strict=True):
            if dim is not None:
                place[dim] = WHOLE if dim in form.cut else index
                within += [index] if dim in form.cut else []
        return Opaque("StridedSlice")(x[tuple(place)])[tuple(within)] if within else x[tuple(place)]

    return element


@describe("StridedSliceGrad", constant_operands=(0, 1, 2, 3), local=output_shape(0))
def strided_slice_gradient(
    shape: Operand,
    begin: Operand,
    end: Operand,
    strides: Operand,
    gradient: Operand,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:
    masks = _Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    form = _strided([int(n) for n in shape.value], begin, end, strides, masks)

    def element(*i: Expression) -> Expression:
        place = tuple(
            Literal(0) if dim is None else WHOLE if dim in form.cut else i[dim]
            for dim in form.of_output
        )
        within = tuple(i[d] for d in sorted({*form.cut, *form.taken}))
        return Opaque("StridedSliceGrad")(gradient[place])[within] if within else gradient[place]

    return element


def _padded(paddings: Operand) -> set[int]:
    return {d for d, row in enumerate(paddings.value.tolist()) if any(row)}


@describe("Pad", "MirrorPad", "MirrorPadGrad", constant_operands=(1,), any_size=along_known)
def pad(x: Operand, paddings: Operand) -> Any:
    dims = _padded(paddings)
    return lambda *i: along("Pad", x, i, dims)


@describe("PadV2", constant_operands=(1,), any_size=along_known)
def pad_v2(x: Operand, paddings: Operand, value: Operand) -> Any:
    dims = sorted(_padded(paddings))

    def element(*i: Expression) -> Expression:
        if not dims:
            return x[i]
        place = tuple(WHOLE if d in dims else index for d, index in enumerate(i))
        return Opaque("Pad")(x[place], value[()])[tuple(i[d] for d in dims)]

    return element


def _local_multiples(piece: Piece) -> dict[int | str, object]:
    """The repetitions of a piece: a dimension of size 1 is repeated to the length of its piece."""
    sizes = zip(piece.local_outputs[0], piece.local_inputs[0], strict=True)
    return {1: [made // given if given else 1 for made, given in sizes]}


@describe("Tile", constant_operands=(1,), local=_local_multiples)
def tile(x: Operand, multiples: Operand) -> Any:
    """A dimension that is repeated can be split where it has one element."""
    repeated = {d for d, n in enumerate(multiples.value) if n != 1 and x.shape[d] != 1}

    def element(*i: Expression) -> Expression:
        place = tuple(
            WHOLE if d in repeated else Literal(0) if x.shape[d] == 1 else index
            for d, index in enumerate(i)
        )
        if not repeated:
            return x[place]
        return Opaque("Tile")(x[place])[tuple(i[d] for d in sorted(repeated))]

    return element


@describe("BroadcastTo", local=output_shape(1), any_size=along_known)
def broadcast_to(x: Operand, _shape: Operand) -> Any:
    return lambda *i: at(x, i)


@describe("Fill", local=output_shape(0), any_size=along_known)
def fill(_dims: Operand, value: Operand) -> Any:
    return lambda *_i: value[()]


@describe("ReverseV2", constant_operands=(1,))
def reverse_v2(x: Operand, axis: Operand) -> Any:
    dims = {int(n) % x.rank for n in axis.value.reshape(-1)}
    return lambda *i: x[
        tuple(x.shape[d] - 1 - index if d in dims else index for d, index in enumerate(i))
    ]


@describe("Reverse", constant_operands=(1,))
def reverse(x: Operand, dims: Operand) -> Any:
    turned = {d for d, flag in enumerate(dims.value) if flag}
    return lambda *i: along("Reverse", x, i, turned)


@describe("ReverseSequence")
def reverse_sequence(x: Operand, lengths: Operand, *, seq_dim: int, batch_dim: int = 0) -> Any:
    """Each sequence is reversed up to its own length."""
    seq, batch = seq_dim % x.rank, batch_dim % x.rank

    def element(*i: Expression) -> Expression:
        place = (*i[:seq], WHOLE, *i[seq + 1 :])
        return Opaque("ReverseSequence")(x[place], lengths[i[batch]])[i[seq]]

    return element


@describe("Roll", constant_operands=(2,))
def roll(x: Operand, _shift: Operand, axis: Operand) -> Any:
    dims = {int(n) % x.rank for n in np.ravel(axis.value)}
    return lambda *i: along("Roll", x, i, dims)


@describe("Cumsum", "Cumprod", "CumulativeLogsumexp", constant_operands=(1,), any_size=by_index)
def cumulative(x: Operand, axis: Operand) -> Any:
    dim = int(axis.value.reshape(())) % x.rank
    return lambda *i: along("Cumulative", x, i, {dim})


@describe("EnsureShape", local=lambda piece: {"shape": piece.local_outputs[0]})
def ensure_shape(x: Operand) -> Any:
    return lambda *i: x[i]


@describe("Bitcast")
def bitcast(x: Operand, *, outputs: Outputs) -> Any:
    """If element types differ in size, the last dimension holds the ratio of the sizes."""
    rank = len(outputs[0].shape)
    if rank < x.rank:
        return lambda *i: Opaque("Bitcast")(x.at(*i, WHOLE))
    if rank > x.rank:
        return lambda *i: Opaque("Bitcast")(x[i[:-1]])[i[-1]]
    return lambda *i: x[i]


record("BroadcastTo", facts=OperatorType(passes_unchanged=True, linear="first", affine="sum"))
record("Cumsum", "Pad", facts=OperatorType(linear="first"))
record("EnsureShape", facts=OperatorType(view="first"))
record(
    "Slice",
    "StridedSlice",
    facts=OperatorType(value="elements", piece_of_input=True, linear="first", affine="sum"),
)
record(
    "Tile",
    facts=OperatorType(value="elements", passes_unchanged=True, linear="first", affine="sum"),
)
