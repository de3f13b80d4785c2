"""Operators that move elements between space, batch and channels."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Expression, Operand
from tensoropt.tdl.ops.whole_dimensions import along
from tensoropt.tdl.registry import describe

__all__: list[str] = []


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
