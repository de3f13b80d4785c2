"""The memory of TensorFlow's CPU kernels, those of oneDNN included.

Some kernels write their output over an input or share its memory, and some take temporary memory.
"""

from __future__ import annotations

from math import prod

from tensoropt.cost.peak.device_program import Kernel
from tensoropt.parallel.resharding import Exchange, ReshardStep
from tensoropt.tdl import operator_type, types_with
from tensoropt.tdl.operator_type import EACH_INPUT
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "HOST_CALL",
    "IN_LINE",
    "MOVE",
    "MOVE_TOGETHER",
    "REWRITTEN",
    "einsum_bytes",
    "same_memory",
    "temporary_bytes",
    "writes_over",
]

HOST_CALL = "PyFunc"
MOVE, MOVE_TOGETHER = "CollectivesMove", "CollectivesAllreduce"
"""Types of kernels that communicate: a call of Python, and kernels in C++ for one or several
tensors."""

IN_LINE = types_with(in_line=True)
"""Types that the executor runs at once, in the thread that made them ready."""

REWRITTEN = types_with(onednn=True)
"""Types that TensorFlow replaces by oneDNN's. The executor visits replaced kernels last."""

_ALIGNED_BYTES = 64


def writes_over(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Return the inputs that an output may be written over if nothing else needs them.

    Each is a pair of an input and an output.
    """
    if kernel.type == MOVE_TOGETHER:
        return tuple((number, number) for number in range(len(kernel.inputs)))
    if kernel.type == MOVE:
        (step,) = kernel.steps
        return ((0, 0),) if isinstance(step, ReshardStep) and step.kind == "allreduce" else ()
    pairs = operator_type(kernel.type).overwrites
    if pairs == (EACH_INPUT,):
        return tuple((number, 0) for number in range(len(kernel.inputs)))
    return pairs


def same_memory(kernel: Kernel, read: tuple[TensorSpec, ...]) -> dict[int, int]:
    """Return the outputs that share an input's memory: the input by output."""
    if kernel.unchanged:
        return {number: number for number in kernel.unchanged}
    known = operator_type(kernel.type)
    if known.view is not None:
        return {number: number for number in range(len(kernel.outputs))}
    if kernel.type == "Slice" and 1 in kernel.operands:
        return {0: 0} if _is_aligned_rows(read[0], kernel.operands[1], kernel.outputs[0]) else {}
    if kernel.type in ("Split", "SplitV"):
        data = 1 if kernel.type == "Split" else 0
        dim = kernel.operands.get(0 if data else 2, (1,))[0]
        pieces = kernel.outputs
        aligned = all(piece.bytes % _ALIGNED_BYTES == 0 for piece in pieces)
        if len(pieces) == 1 or (dim == 0 and aligned):
            return dict.fromkeys(range(len(pieces)), data)
    if kernel.type == "Unpack":
        aligned = all(piece.bytes % _ALIGNED_BYTES == 0 for piece in kernel.outputs)
        first = kernel.operands.get(-1, (0,)) == (0,)
        return dict.fromkeys(range(len(kernel.outputs)), 0) if first and aligned else {}
    if known.passes_unchanged:
        return _unchanged(kernel, read)
    if kernel.type == "Transpose" and 1 in kernel.operands:
        moved = [dim for dim in kernel.operands[1] if read[0].shape[dim] != 1]
        return {0: 0} if moved == sorted(moved) else {}
    if kernel.type == "StridedSlice":
        whole = read[0].elements == kernel.outputs[0].elements
        return {0: 0} if whole and read[0].elements > 1 else {}
    return {}


def _unchanged(kernel: Kernel, read: tuple[TensorSpec, ...]) -> dict[int, int]:
    """Return `same_memory` of a kernel that leaves its only input unchanged."""
    if kernel.type in ("ConcatV2", "Pack") and len(read) > (2 if kernel.type == "ConcatV2" else 1):
        return {}
    same = read[0].dtype == kernel.outputs[0].dtype
    return {0: 0} if same and read[0].elements == kernel.outputs[0].elements else {}


def _is_aligned_rows(whole: TensorSpec, begin: tuple[int, ...], part: TensorSpec) -> bool:
    """Whether a slice consists of whole rows that start at an aligned address, or is everything."""
    if whole.shape == part.shape:
        return True
    if whole.shape[1:] != part.shape[1:]:
        return False
    row = part.bytes // max(1, part.shape[0])
    return begin[0] * row % _ALIGNED_BYTES == 0 and row % _ALIGNED_BYTES == 0


def temporary_bytes(kernel: Kernel, read: tuple[TensorSpec, ...]) -> int:
    """Return the bytes that a kernel takes while it runs, besides its outputs."""
    if kernel.body_bytes:
        return kernel.body_bytes
    if kernel.type == "Einsum":
        return einsum_bytes(kernel, read)
    if kernel.type in ("Max", "Mean", "Min", "Prod", "Sum") and 1 in kernel.operands:
        return _reduction_bytes(read[0], kernel.operands[1])
    if kernel.type == MOVE:
        (step,) = kernel.steps
        if isinstance(step, Exchange) and step.back:
            return read[0].bytes // max(1, read[0].shape[step.dim]) * _rows_added(step)
    return 0


def _rows_added(step: Exchange) -> int:
    """Return the number of rows that are received for one piece, for the piece with the most."""
    return max(
        sum(
            max(0, min(start + step.length, first + step.extent) - max(start, first))
            for start in step.starts
        )
        for first in range(0, len(step.starts) * step.extent, max(1, step.extent))
    )


def _reduction_bytes(whole: TensorSpec, axes: tuple[int, ...]) -> int:
    """Return the temporary bytes of a reduction.

    Runs of neighbouring dimensions are reduced together. Kernels reduce the first, the last or the
    middle of up to three runs. In other cases they transpose the input first.
    """
    rank = len(whole.shape)
    reduced = {axis % rank for axis in axes}
    runs: list[bool] = []
    for dim, size in enumerate(whole.shape):
        if size != 1 and (not runs or runs[-1] != (dim in reduced)):
            runs.append(dim in reduced)
    if len(runs) <= 2 or runs == [False, True, False] or runs == [True, False, True]:
        return 0
    return whole.bytes


_COLUMNS = 256
"""Largest number of columns that oneDNN copies at a time."""
_BATCH, _FREE, _CONTRACTED, _REDUCED = 1, 2, 3, 4
"""Kinds of an Einsum's dimensions, in the order in which it wants them."""
_SWAPPED = {_BATCH: 1, _FREE: 3, _CONTRACTED: 2, _REDUCED: 4}
"""The other order that an Einsum accepts."""


def einsum_bytes(kernel: Kernel, read: tuple[TensorSpec, ...]) -> int:
    """Return the temporary bytes of an Einsum.

    It transposes operands before it multiplies them, and the product afterwards.
    """
    sides, _, result = kernel.equation.partition("->")
    operands = sides.split(",")
    names = list(dict.fromkeys(sides.replace(",", "")))
    kinds = {}
    for name in names:
        if name not in result:
            everywhere = len(operands) > 1 and all(name in side for side in operands)
            kinds[name] = _CONTRACTED if everywhere else _REDUCED
        else:
            everywhere = len(operands) > 1 and all(name in side for side in operands)
            kinds[name] = _BATCH if everywhere else _FREE
    total = 0
    for side, spec in zip(operands, read, strict=True):
        keys = [(kinds[name], names.index(name)) for name in side]
        swapped = [(_SWAPPED[kind], place) for kind, place in keys]
        if keys != sorted(keys) and swapped != sorted(swapped):
            total += spec.bytes
    product = [name for name in names if kinds[name] == _BATCH]
    for side in operands:
        product += [name for name in sorted(side, key=names.index) if kinds[name] == _FREE]
    product_bytes = 0
    if len(operands) == 2 and all(_is_across(side, kinds) for side in operands):
        # oneDNN copies transposed operands, up to `_COLUMNS` columns at a time.
        extents = dict(zip(operands[0], read[0].shape, strict=True))
        columns = prod(extent for name, extent in extents.items() if name in result)
        product_bytes = read[0].bytes // max(1, columns) * min(columns, _COLUMNS)
    if product != list(result):
        product_bytes = max(product_bytes, kernel.outputs[0].bytes)
    return total + product_bytes


def _is_across(side: str, kinds: dict[str, int]) -> bool:
    """Whether an operand's contracted dimensions come before its free dimensions."""
    own_kinds = [kinds[name] for name in side if kinds[name] in (_FREE, _CONTRACTED)]
    descending = own_kinds == sorted(own_kinds, reverse=True)
    return bool(own_kinds) and descending and own_kinds[0] == _CONTRACTED
