"""What the steps of a resharding move, as costs are asked for and measurements are kept."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.exchange import Exchange
from tensoropt.parallel.resharding.step import ReshardStep

if TYPE_CHECKING:
    from tensoropt.parallel.resharding import Step

__all__ = ["Move", "moves", "shape_after"]

_LONG_RUN_BYTES = 512
"""Between the runs that are measured as short ones and as long ones."""


class Move(NamedTuple):
    """One step, for a price.

    Attributes:
        kind: as `tensoropt.cost.model.CostModel` names it.
        axes: the mesh axes of its groups, in the step's order.
        bytes: that a device holds before, after a local step; of an exchange, that it sends.
        runs: how the pieces that it cuts or joins lie in memory: "whole", "long" or "short"; empty
            for an exchange and the copy that makes its windows.
    """

    kind: str
    axes: tuple[int, ...]
    bytes: int
    runs: str


def moves(
    steps: Sequence[Step], mesh: Mesh, local_shape: Sequence[int], itemsize: int
) -> tuple[Move, ...]:
    """What steps move, one after another.

    Args:
        steps: of one resharding, or halos.
        mesh: the devices.
        local_shape: of the piece that a device holds before the first.
        itemsize: bytes of an element.
    """
    found: list[Move] = []
    shape = tuple(local_shape)
    for step in steps:
        before, shape = shape, shape_after(step, mesh, shape)
        if isinstance(step, Exchange):
            row_bytes = itemsize * prod(n for dim, n in enumerate(shape) if dim != step.dim)
            sent = row_bytes * max(0, step.length - step.extent)
            windows = row_bytes * max(step.length, step.extent)
            found += [Move("exchange", step.axes, sent, ""), Move("slice", step.axes, windows, "")]
            continue
        held = prod(shape if step.is_local else before) * itemsize
        found.append(Move(step.kind, step.axes, held, _runs(step, before, shape, itemsize)))
    return tuple(found)


def shape_after(step: Step, mesh: Mesh, local_shape: Sequence[Any]) -> tuple[Any, ...]:
    """The local shape of a piece after a step, from that before it; None for an unknown extent."""
    shape = list(local_shape)
    if isinstance(step, Exchange):
        shape[step.dim] = step.result
        return tuple(shape)
    pieces = mesh.pieces(step.axes)
    if step.from_dim is not None and shape[step.from_dim] is not None:
        shape[step.from_dim] *= pieces
    if step.to_dim is not None and shape[step.to_dim] is not None:
        shape[step.to_dim] //= pieces
    return tuple(shape)


def _runs(step: ReshardStep, before: Sequence[int], after: Sequence[int], itemsize: int) -> str:
    """How pieces lie in memory (`collectives.bandwidth.RUNS`)."""
    shortest: int | None = None
    for dim, cut in ((step.from_dim, before), (step.to_dim, after)):
        if dim is None or prod(cut[:dim]) == 1:
            continue
        piece = list(cut)
        if step.from_dim is not None and step.to_dim is not None:  # cut before it is joined
            piece = [min(a, b) for a, b in zip(before, after, strict=True)]
        run = prod(piece[dim:]) * itemsize
        shortest = run if shortest is None else min(shortest, run)
    if shortest is None:
        return "whole"
    return "short" if shortest < _LONG_RUN_BYTES else "long"
