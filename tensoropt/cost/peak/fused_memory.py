"""Memory within one resharding that communicates: arrays beside TensorFlow's, step by step.

It follows `collectives.operations`: which of them makes a contiguous copy to send, what it receives
into, and whether shards are joined by a copy.
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
    """What a resharding takes while it runs, and leaves.

    Attributes:
        peak_bytes: of arrays that it makes, at their most; its input is not one.
        left_bytes: of the array that its result lies in; 0 where that is the input's.
    """

    peak_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class _Array:
    """Shape, the bytes of the buffer that it lies in (0: the input's), and whether it fills it."""

    shape: tuple[int, ...]
    held: int
    contiguous: bool = True


def fused_memory(
    shape: Sequence[int], itemsize: int, steps: Sequence[Step], mesh: Mesh, rank: int
) -> FusedMemory:
    """The memory of a fused resharding.

    Args:
        shape: of the piece before.
        itemsize: bytes of an element.
        steps: what happens to it.
        mesh: all devices.
        rank: the one that it happens on.
    """
    array = _Array(tuple(shape), 0)
    peak = 0
    for step in steps:
        after, meanwhile = _applied(array, itemsize, step, mesh, rank)
        peak = max(peak, array.held + meanwhile)
        array = after
    if not array.contiguous:
        copy = prod(array.shape) * itemsize
        peak = max(peak, array.held + copy)
        array = _Array(array.shape, copy)
    return FusedMemory(peak, array.held)


def _applied(array: _Array, itemsize: int, step: Step, mesh: Mesh, rank: int) -> tuple[_Array, int]:
    """The array after a step, and the most that the step makes at once."""
    before = prod(array.shape) * itemsize
    if isinstance(step, Exchange):
        return _exchanged(array, before, itemsize, step)
    shape = shape_after(step, mesh, array.shape)
    after = prod(shape) * itemsize
    if step.kind == "slice":
        whole = array.contiguous and prod(shape[: step.to_dim or 0]) == 1
        return _Array(shape, array.held, whole), 0
    if step.kind == "mask":
        if mesh.piece(rank, step.axes) == 0 or step.reducer not in ("sum", "prod"):
            return array, 0
        return _Array(shape, before), before
    made, meanwhile = _collective(array, before, after, step, shape)
    return _Array(tuple(shape), made), meanwhile


def _collective(
    array: _Array, before: int, after: int, step: ReshardStep, shape: tuple[int, ...]
) -> tuple[int, int]:
    cut = step.to_dim is not None and prod(array.shape[: step.to_dim]) > 1
    copied = before if cut or not array.contiguous else 0
    if step.from_dim is None:
        return after, copied + after
    # What was sent is gone when the pieces that came are joined.
    joined = after if prod(shape[: step.from_dim]) > 1 else 0
    return after, after + max(copied, joined)


def _exchanged(array: _Array, before: int, itemsize: int, step: Exchange) -> tuple[_Array, int]:
    """The worst place of a group's; a halo is sent from one buffer and received in another."""
    shape = list(array.shape)
    shape[step.dim] = step.result
    after = prod(shape) * itemsize
    row = before // max(1, array.shape[step.dim])
    crossing = 0
    whole = len(step.starts) * step.extent
    for place, start in enumerate(step.starts):
        first, end = max(0, start), min(whole, start + step.length)
        own = range(max(first, place * step.extent), min(end, (place + 1) * step.extent))
        crossing = max(crossing, max(0, end - first) - len(own))
    return _Array(tuple(shape), after), after + 2 * crossing * row
