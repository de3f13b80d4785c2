"""The data that each step of a resharding moves: the quantities that its price depends on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tensoropt.converters import Natural, one_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.exchange import Exchange
from tensoropt.parallel.resharding.step import ReshardStep

if TYPE_CHECKING:
    from tensoropt.parallel.resharding import Step

__all__ = ["Runs", "StepTraffic", "shape_after", "step_traffic"]

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
            traffic.append(StepTraffic("slice", step.axes, copied, ""))
        traffic.append(StepTraffic(step.kind, step.axes, held, runs))
    return tuple(traffic)


def _filled(
    step: ReshardStep, mesh: Mesh, before: Sequence[int], after: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return the bytes of a step whose pieces are filled up, and the bytes copied for that."""
    held, result = prod(before) * itemsize, prod(after) * itemsize
    copied, dim = 0, step.to_dim
    if dim is not None and mesh.is_shared(step.shape[dim]):
        held = held * after[dim] * mesh.pieces(step.axes) // before[dim]
        copied = held + result
    if step.from_dim is not None and mesh.is_shared(step.shape[step.from_dim]):
        copied = max(copied, held + result)
    return held, copied


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
    """Return the contiguity of pieces in memory (`collectives.bandwidth.RUNS`)."""
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
