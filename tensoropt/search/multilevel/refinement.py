"""Meshes of few axes for many devices: the coarsest, and each with one axis split in two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import comb, prod

from tensoropt.parallel.mesh import Mesh, prime_factors

__all__ = ["Refinement", "layouts", "most_axes", "refinements"]

_MOST_LAYOUTS = 5_000
_ALWAYS = 4


@dataclass(frozen=True, slots=True)
class Refinement:
    """A mesh, and the axis of the mesh before it that was split.

    Attributes:
        mesh: the devices.
        split: the axis of the mesh before that became this axis and the next; None for the first
            mesh.
    """

    mesh: Mesh
    split: int | None = None


def most_axes(rank: int) -> int:
    """Return the most mesh axes on which tensors of a rank can be searched: four, more for low
    ranks.

    All layouts of a tensor are enumerated for resharding: with 5 axes a tensor of rank 4 has 21,872
    of them, with 4 axes 2,424.
    """
    count = _ALWAYS
    while layouts(rank, count + 1) <= _MOST_LAYOUTS:
        count += 1
    return count


def layouts(rank: int, axes: int) -> int:
    """Return the number of layouts of a tensor.

    Each axis is on a dimension, in any order there, or on none and replicated or partial.
    """
    return sum(
        comb(axes, split) * prod(range(rank, rank + split)) * 2 ** (axes - split)
        for split in range(axes + 1)
    )


@lru_cache(maxsize=256)
def refinements(levels: Sequence[int], most: int) -> tuple[Refinement, ...]:
    """Return meshes from the coarsest to one of at most ``most`` axes, one axis split at a time.

    The coarsest mesh has an axis for every level of links and prime number: 24 machines of 8
    devices are [8,3,8]. The innermost axis that is no prime is split first, then the largest, the
    outermost of several, as evenly as possible. The last mesh has all prime axes if these are at
    most ``most``. If even the coarsest mesh has more, it is the only one.

    Args:
        levels: counts of every level, outermost first, as `Mesh.of` takes them.
        most: at least 1.
    """
    sizes = [
        prod(same)
        for level in levels
        for same in (list(group) for _, group in groupby(prime_factors(level)))
    ]
    meshes = [Refinement(Mesh(tuple(sizes)))]
    while len(sizes) < most:
        axis = _next(sizes, first=len(meshes) == 1)
        if axis is None:
            break
        factors = prime_factors(sizes[axis])
        outer = prod(factors[: len(factors) // 2])
        sizes[axis : axis + 1] = [outer, sizes[axis] // outer]
        meshes.append(Refinement(Mesh(tuple(sizes)), axis))
    return tuple(meshes)


def _next(sizes: Sequence[int], *, first: bool) -> int | None:
    """Return the axis to split; None where all are primes."""
    composite = [axis for axis, size in enumerate(sizes) if len(prime_factors(size)) > 1]
    if not composite:
        return None
    return composite[-1] if first else max(composite, key=lambda axis: sizes[axis])
