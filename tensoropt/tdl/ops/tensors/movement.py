"""Operators that move elements without computing, also between space, batch and channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tensoropt.tdl.any_size import by_index, regrouped
from tensoropt.tdl.description import Piece, output_shape
from tensoropt.tdl.expression import Expression, Literal, Operand
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import along
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []


def _groups(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the finest runs of source and target dimensions of equal products, without sizes 1."""
    left = [d for d, n in enumerate(source) if n != 1]
    right = [d for d, n in enumerate(target) if n != 1]
    while left or right:
        a, b = [left.pop(0)], [right.pop(0)]
        while (p := prod(source[d] for d in a)) != (q := prod(target[d] for d in b)):
            if p < q:
                a.append(left.pop(0))
            else:
                b.append(right.pop(0))
        yield a, b


@describe("Reshape", local=output_shape(1), any_size=regrouped)
def reshape(x: Operand, _shape: Operand, *, outputs: tuple[TensorSpec, ...]) -> Any:
    """In each run of dimensions, // and % turn the flat place into subscripts."""
    target = outputs[0].shape
    if prod(target) == 0:
        return None

    def element(*i: Expression) -> Expression:
        subscripts: list[Expression] = [Literal(0)] * x.rank
        for source_dims, target_dims in _groups(x.shape, target):
            flat: Expression = i[target_dims[0]]
            for d in target_dims[1:]:
                flat = flat * target[d] + i[d]
            stride = prod(x.shape[d] for d in source_dims)
            for d in source_dims:
                stride //= x.shape[d]
                subscripts[d] = (flat // stride) % x.shape[d]
        return x[tuple(subscripts)]

    return element


@describe("Transpose", "ConjugateTranspose", constant_operands=(1,), any_size=by_index)
def transpose(x: Operand, perm: Operand) -> Any:
    order = [int(n) % x.rank for n in perm.value]
    return lambda *i: x[tuple(i[order.index(d)] for d in range(x.rank))]


@describe("ExpandDims", constant_operands=(1,), any_size=by_index)
def expand_dims(x: Operand, axis: Operand) -> Any:
    new = int(axis.value.reshape(())) % (x.rank + 1)
    return lambda *i: x[i[:new] + i[new + 1 :]]


def _squeezed(shape: Sequence[int], squeeze_dims: Sequence[int]) -> list[int]:
    named = [n % len(shape) for n in squeeze_dims]
    return sorted(named) or [d for d, n in enumerate(shape) if n == 1]


def _explicit_squeeze(piece: Piece) -> dict[int | str, object]:
    """The kernel is told the dimensions: a piece may have more of size 1 than the whole."""
    named = piece.attributes.get("squeeze_dims", ())
    return {"squeeze_dims": _squeezed(piece.inputs[0].shape, list(named))}  # type: ignore[call-overload]


@describe("Squeeze", local=_explicit_squeeze, any_size=by_index)
def squeeze(x: Operand, *, squeeze_dims: tuple[int, ...] = ()) -> Any:
    gone = _squeezed(x.shape, squeeze_dims)

    def element(*i: Expression) -> Expression:
        kept = iter(i)
        return x[tuple(Literal(0) if d in gone else next(kept) for d in range(x.rank))]

    return element


record(
    "ExpandDims",
    "Reshape",
    "Squeeze",
    facts=OperatorType(value="elements", view="first", in_line=True, linear="first", affine="sum"),
)
record("Transpose", facts=OperatorType(value="elements", onednn=True, linear="first", affine="sum"))


@describe("SpaceToDepth")
def space_to_depth(x: Operand, *, block_size: int, data_format: str = "NHWC") -> Any:
    """Channel (dy * block + dx) * C + c of a place holds channel c of its block's (dy, dx)."""
    if data_format != "NHWC":
        return None
    channels = x.shape[3]

    def element(b: Expression, i: Expression, j: Expression, c: Expression) -> Expression:
        part = c // channels
        return x[
            b, i * block_size + part // block_size, j * block_size + part % block_size, c % channels
        ]

    return element


@describe("DepthToSpace")
def depth_to_space(x: Operand, *, block_size: int, data_format: str = "NHWC") -> Any:
    """The inverse of SpaceToDepth."""
    if data_format != "NHWC":
        return None
    channels = x.shape[3] // (block_size * block_size)

    def element(b: Expression, i: Expression, j: Expression, c: Expression) -> Expression:
        part = (i % block_size) * block_size + j % block_size
        return x[b, i // block_size, j // block_size, part * channels + c]

    return element


@describe("SpaceToBatchND", "BatchToSpaceND", constant_operands=(1,))
def space_and_batch_nd(x: Operand, block_shape: Operand, _edges: Operand) -> Any:
    """Batch and the blocked dimensions are whole; later dimensions are independent."""
    moved = set(range(block_shape.value.size + 1))
    return lambda *i: along("SpaceAndBatch", x, i, moved)


@describe("SpaceToBatch", "BatchToSpace")
def space_and_batch(x: Operand, _edges: Operand) -> Any:
    return lambda *i: along("SpaceAndBatch", x, i, {0, 1, 2})
