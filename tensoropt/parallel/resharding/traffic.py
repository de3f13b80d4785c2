"""The data that each step of a resharding moves: the quantities that its price depends on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.converters import Natural, one_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.step import Exchange, ReshardStep

if TYPE_CHECKING:
    from tensoropt.parallel.resharding import Step

__all__ = ["Runs", "StepTraffic", "filled_bytes", "shape_after", "step_traffic"]

Runs = Annotated[str, one_of(("", "whole", "long", "short"))]
"""The lengths of the pieces of memory that a step cuts or joins; empty if they do not matter."""

_LONG_RUN_BYTES = 512
"""Runs of at least this length count as long. It lies between the lengths that are measured as
short and as long runs."""


class StepTraffic(NamedTuple):
    """The traffic of one step.

    Attributes:
        kind: kind of step, as in `tensoropt.cost.model.CostModel`.
        axes: the mesh axes of its groups, in the step's order.
        bytes: bytes that a device holds before the step (after it, if it is local), or sends in an
            exchange.
        runs: contiguity in memory of the pieces that are cut or joined: "whole", "long" or "short";
            empty for an exchange and for the copy of its windows.
    """

    kind: str
    axes: tuple[Natural, ...]
    bytes: Natural
    runs: Runs


def step_traffic(
    steps: Sequence[Step], mesh: Mesh, local_shape: Sequence[int], itemsize: int
) -> tuple[StepTraffic, ...]:
    """Return the traffic of a sequence of steps.

    Args:
        steps: the steps of one resharding, or exchanges.
        mesh: the devices.
        local_shape: shape of a device's piece before the first step.
        itemsize: bytes of an element.
    """
    traffic: list[StepTraffic] = []
    shape = tuple(local_shape)
    for step in steps:
        before, shape = shape, shape_after(step, mesh, shape)
        if isinstance(step, Exchange):
            row_bytes = itemsize * prod(n for dim, n in enumerate(shape) if dim != step.dim)
            sent = row_bytes * max(0, step.length - step.extent)
            windows = row_bytes * max(step.length, step.extent)
            traffic += [
                StepTraffic("exchange", step.axes, sent, ""),
                StepTraffic("slice", step.axes, windows, ""),
            ]
            continue
        held = prod(shape if step.is_local else before) * itemsize
        runs = _runs(step, before, shape, itemsize)
        if mesh.shares is not None and step.shape and not step.is_local:
            held, copied = _filled(step, mesh, before, shape, itemsize)
            if copied:
                traffic.append(StepTraffic("slice", step.axes, copied, ""))
        traffic.append(StepTraffic(step.kind, step.axes, held, runs))
    return tuple(traffic)


def filled_bytes(
    held: Int64Array,
    result: Int64Array,
    cut: tuple[Int64Array, Int64Array, Int64Array],
    is_shared: tuple[BoolArray, BoolArray],
) -> tuple[Int64Array, Int64Array]:
    """Return the bytes of steps whose pieces are filled up, and the bytes copied for that.

    Pieces in proportion to speeds are filled up to the largest before a collective, and the copies
    are left out afterwards, dimension by dimension, see
    `tensoropt.execution.world.resharding.uneven_pieces`.

    Args:
        held: int64[E], the bytes of the largest piece before each step.
        result: int64[E], the same after it.
        cut: int64[E] each, for the dimension that is cut: its extent in the largest piece before
            and after the step, and the number of pieces.
        is_shared: bool[E] each, whether the dimension that is cut, and the one that is joined, has
            pieces in proportion to speeds.
    """
    before, after, pieces = cut
    is_cut, is_joined = is_shared
    moved = np.where(is_cut, held * after * pieces // np.maximum(before, 1), held)
    return moved, np.where(is_cut, moved + result, 0) + np.where(is_joined, held + result, 0)


def _filled(
    step: ReshardStep, mesh: Mesh, before: Sequence[int], after: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return `filled_bytes` of one step."""
    dims = step.to_dim, step.from_dim
    shared = (dim is not None and mesh.is_shared(step.shape[dim]) for dim in dims)
    cut = (0, 0) if step.to_dim is None else (before[step.to_dim], after[step.to_dim])
    numbers = prod(before) * itemsize, prod(after) * itemsize, *cut, mesh.pieces(step.axes)
    held, result, *cuts = (np.array(number, np.int64) for number in numbers)
    is_cut, is_joined = (np.array(each, np.bool_) for each in shared)
    moved, copied = filled_bytes(held, result, (cuts[0], cuts[1], cuts[2]), (is_cut, is_joined))
    return int(moved), int(copied)


def shape_after(step: Step, mesh: Mesh, local_shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape of a device's piece after a step. None stands for an unknown extent.

    If pieces differ, return the shape of the largest.
    """
    shape = list(local_shape)
    if isinstance(step, Exchange):
        shape[step.dim] = step.result
        return tuple(shape)
    if step.shape:
        return step.target.local_shape(step.shape, mesh)
    pieces = mesh.pieces(step.axes)
    if step.from_dim is not None and shape[step.from_dim] is not None:
        shape[step.from_dim] *= pieces
    if step.to_dim is not None and shape[step.to_dim] is not None:
        shape[step.to_dim] //= pieces
    return tuple(shape)


def _runs(step: ReshardStep, before: Sequence[int], after: Sequence[int], itemsize: int) -> str:
    """Return the contiguity of pieces in memory (`collectives.bandwidth.matrices.RUNS`)."""
    shortest: int | None = None
    for dim, cut in ((step.from_dim, before), (step.to_dim, after)):
        if dim is None or prod(cut[:dim]) == 1:
            continue
        piece = list(cut)
        if step.from_dim is not None and step.to_dim is not None:  # cut first, then joined
            piece = [min(a, b) for a, b in zip(before, after, strict=True)]
        run = prod(piece[dim:]) * itemsize
        shortest = run if shortest is None else min(shortest, run)
    if shortest is None:
        return "whole"
    return "short" if shortest < _LONG_RUN_BYTES else "long"
