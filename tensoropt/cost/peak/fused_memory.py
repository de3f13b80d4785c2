"""Memory of NumPy arrays during one resharding that communicates, step by step.

It follows `collectives.operations`: whether a collective copies its input to make it contiguous,
the array that it receives into, and whether shards are joined by a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, ReshardStep, Step, shape_after

__all__ = ["FusedMemory", "fused_memory"]


@dataclass(frozen=True, slots=True)
class FusedMemory:
    """The memory that a resharding takes while it runs, and afterwards.

    Attributes:
        peak_bytes: largest memory of the arrays that it makes. Its input does not count.
        left_bytes: bytes of the array of its result; 0 if the result shares the input's memory.
    """

    peak_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class _Array:
    """An array: its shape, the bytes of its buffer (0 for the input's), and whether it fills it."""

    shape: tuple[int, ...]
    held: int
    contiguous: bool = True


def fused_memory(
    shape: Sequence[int], itemsize: int, steps: Sequence[Step], mesh: Mesh, rank: int
) -> FusedMemory:
    """Return the memory of a resharding.

    Args:
        shape: shape of the piece before.
        itemsize: bytes of an element.
        steps: the steps of the resharding.
        mesh: all devices.
        rank: the device.
    """
    array = _Array(tuple(shape), 0)
    peak = 0
    for step in steps:
        after, temporary = _applied(array, itemsize, step, mesh, rank)
        peak = max(peak, array.held + temporary)
        array = after
    if not array.contiguous:
        copy = prod(array.shape) * itemsize
        peak = max(peak, array.held + copy)
        array = _Array(array.shape, copy)
    return FusedMemory(peak, array.held)


def _applied(array: _Array, itemsize: int, step: Step, mesh: Mesh, rank: int) -> tuple[_Array, int]:
    """Return the array after a step, and the largest memory that the step takes."""
    before = prod(array.shape) * itemsize
    if isinstance(step, Exchange):
        return _exchanged(array, before, itemsize, step)
    shape = shape_after(step, mesh, array.shape)
    after = prod(shape) * itemsize
    if step.kind == "slice":
        is_contiguous = array.contiguous and prod(shape[: step.to_dim or 0]) == 1
        return _Array(shape, array.held, is_contiguous), 0
    if step.kind == "mask":
        if mesh.piece(rank, step.axes) == 0 or step.reducer not in ("sum", "prod"):
            return array, 0
        return _Array(shape, before), before
    held, temporary = _collective(array, before, after, step, shape)
    return _Array(tuple(shape), held), temporary


def _collective(
    array: _Array, before: int, after: int, step: ReshardStep, shape: tuple[int, ...]
) -> tuple[int, int]:
    """Return the bytes of the result of a collective, and the largest memory that it takes."""
    cut = step.to_dim is not None and prod(array.shape[: step.to_dim]) > 1
    copied = before if cut or not array.contiguous else 0
    if step.from_dim is None:
        return after, copied + after
    # The sent pieces are freed before the received pieces are joined.
    joined = after if prod(shape[: step.from_dim]) > 1 else 0
    return after, after + max(copied, joined)


def _exchanged(array: _Array, before: int, itemsize: int, step: Exchange) -> tuple[_Array, int]:
    """Return the result of an exchange, and the largest memory that it takes on any member.

    Each halo takes memory twice: in a buffer that is sent, and in one that is received.
    """
    shape = list(array.shape)
    shape[step.dim] = step.result
    after = prod(shape) * itemsize
    row_bytes = before // max(1, array.shape[step.dim])
    halo_rows = 0
    whole = len(step.starts) * step.extent
    for member, start in enumerate(step.starts):
        first, end = max(0, start), min(whole, start + step.length)
        own_rows = range(max(first, member * step.extent), min(end, (member + 1) * step.extent))
        halo_rows = max(halo_rows, max(0, end - first) - len(own_rows))
    return _Array(tuple(shape), after), after + 2 * halo_rows * row_bytes
