"""Steps on tensors whose pieces differ: the members of a collective have arrays of one shape.

Before a collective, each piece is filled up to the extent of the largest one, with a copy of its
last element. Afterwards these copies are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collectives.operations.local import Select
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["own_part", "selections"]

_Ranges = list[tuple[int, int]]


def own_part(step: ReshardStep, mesh: Mesh, ranks: Sequence[int]) -> Select:
    """Return the operation of a slice: each rank keeps its part.

    Args:
        step: a slice, with a shape.
        mesh: the devices.
        ranks: the ranks emitted here.
    """
    dim = step.to_dim
    assert dim is not None, "a slice has a dimension"
    return Select(
        dim, tuple((_within(step, mesh, dim, step.target, step.source, r, r),) for r in ranks)
    )


def selections(
    step: ReshardStep, mesh: Mesh, ranks: Sequence[int]
) -> tuple[list[Select], list[Select]]:
    """Return the operations before and after a collective, as many on each rank.

    Args:
        step: a collective, with a shape.
        mesh: the devices.
        ranks: the ranks emitted here.
    """
    before, after = [], []
    largest, cut = (layout.local_shape(step.shape, mesh) for layout in (step.source, step.target))
    joined_unevenly = step.source.uneven_dims(step.shape, mesh)
    if (dim := step.from_dim) is not None and dim in joined_unevenly:
        held = [step.source.shape_on(step.shape, mesh, rank)[dim] for rank in ranks]
        before.append(_select(dim, [_filled((0, n), largest[dim]) for n in held]))
        joined = [
            [(k * largest[dim], k * largest[dim] + end - start) for k, (start, end) in pieces]
            for pieces in (enumerate(_pieces(step, mesh, rank, dim, False)) for rank in ranks)
        ]
        after.append(_select(dim, joined))
    cut_unevenly = step.target.uneven_dims(step.shape, mesh)
    if (dim := step.to_dim) is not None and dim in cut_unevenly:
        parts = [
            [each for piece in _pieces(step, mesh, rank, dim, True) for each in _filled(piece, n)]
            for rank, n in ((rank, cut[dim]) for rank in ranks)
        ]
        before.append(_select(dim, parts))
        kept = [[(0, step.target.shape_on(step.shape, mesh, rank)[dim])] for rank in ranks]
        after.append(_select(dim, kept))
    return before, after


def _pieces(
    step: ReshardStep, mesh: Mesh, rank: int, dim: int, is_cut: bool
) -> Iterable[tuple[int, int]]:
    """Yield where the members' pieces of a dimension lie in what they are cut from or joined to."""
    part, whole = (step.target, step.source) if is_cut else (step.source, step.target)
    for member in mesh.group(rank, step.axes):
        yield _within(step, mesh, dim, part, whole, member, rank)


def _within(
    step: ReshardStep, mesh: Mesh, dim: int, part: Layout, whole: Layout, member: int, rank: int
) -> tuple[int, int]:
    """Return where a member's piece in the layout ``part`` lies in a rank's piece in ``whole``."""
    extent = step.shape[dim]
    start, end = mesh.bounds(extent, part.dims[dim], member)
    first, _ = mesh.bounds(extent, whole.dims[dim], rank)
    return start - first, end - first


def _filled(piece: tuple[int, int], extent: int) -> _Ranges:
    """Return ranges of ``extent`` elements that begin with a piece."""
    start, end = piece
    return [piece] + [(end - 1, end)] * (extent - (end - start))


def _select(dim: int, ranges: Sequence[_Ranges]) -> Select:
    """Return the operation that selects ranges on each rank."""
    return Select(dim, tuple(map(_merged, ranges)))


def _merged(ranges: _Ranges) -> tuple[tuple[int, int], ...]:
    merged: _Ranges = []
    for start, end in ranges:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)
