"""Times of collectives on a described cluster, from latency and bandwidth per level of links.

A group of devices spans, at each level, g units of that level. Collectives run level by level, as
in hierarchical implementations, and their time is the sum over the levels. With latency a, the
bytes b that one device holds before the collective, and the bandwidth B of one device at the level,
one level takes

==============  =======================  ========================================================
reduce_scatter  (g-1) (a + x/g / B)      ring, inner levels first; x is b divided by the pieces
                                         made at inner levels
allgather       (g-1) (a + x / B)        ring, outer levels first; x is b times the pieces joined
                                         at outer levels
allreduce       twice reduce_scatter     ring: reduce_scatter, then allgather of the result
alltoall        p (a + b/G / B)          pairwise: over this level a device reaches p of the G
                                         members of its group
broadcast       ceil(log2 g) a + b / B   tree, pipelined
exchange        a + b / B                with a neighbour; the slowest level, not the sum
==============  =======================  ========================================================

Rings, pairwise exchange and trees: Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH" (2005). The arithmetic of reductions is left out.

Contention (TensorOpt, section 3.2): all groups of a device partitioning communicate at the same
time. If the devices inside one unit share its link, B is the link's bandwidth divided by the number
of devices that use it at once. These are all devices of the unit; in broadcast and exchange, where
one member of a group per unit uses the link, they are one per group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tensoropt.cost.cluster import Cluster
from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.mesh import Mesh

__all__ = ["COLLECTIVES", "Span", "axis_levels", "collective_seconds", "spans", "whole_nanoseconds"]


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a group at one level of links at which it spans more than one unit.

    Attributes:
        members: units that the group spans at this level, inside one unit of the next outer level.
        inside: members of the group inside one of these units.
        latency_seconds: latency of one message.
        all_bandwidth: bytes per second of one device while all devices communicate.
        one_bandwidth: bytes per second of one device while one member per unit and group does.
    """

    members: int
    inside: int
    latency_seconds: float
    all_bandwidth: float
    one_bandwidth: float


def axis_levels(cluster: Cluster, mesh: Mesh) -> tuple[int, ...]:
    """Return the level of the cluster, 0 for the outermost, of every mesh axis.

    Raises:
        LayoutError: if consecutive axes of the mesh do not multiply to the counts of the levels.
    """
    counts = cluster.level_counts(mesh.size)
    levels: list[int] = []
    for level, count in enumerate(counts):
        reached = 1
        while reached < count and len(levels) < len(mesh.axes):
            reached *= mesh.axes[len(levels)]
            levels.append(level)
        if reached != count:
            raise LayoutError(
                f"consecutive axes of a mesh multiply to the levels {list(counts)} of cluster "
                f"{cluster.name}. Got mesh {mesh}."
            )
    return tuple(levels)


def spans(cluster: Cluster, mesh: Mesh, axes: Sequence[int]) -> tuple[Span, ...]:
    """Return the levels that groups along ``axes`` span, the innermost first.

    Raises:
        LayoutError: if the mesh does not fit the cluster, or ``axes`` is empty.
    """
    if not axes:
        raise LayoutError("a collective runs along at least one mesh axis. Got none.")
    mesh.group(0, axes)  # refuses unknown and repeated axes
    levels = axis_levels(cluster, mesh)
    result = []
    for level in reversed(range(len(cluster.levels))):
        members = mesh.pieces([axis for axis in axes if levels[axis] == level])
        if members == 1:
            continue
        inside = mesh.pieces([axis for axis in axes if levels[axis] > level])
        devices = prod(s for axis, s in enumerate(mesh.axes) if levels[axis] > level)
        link = cluster.levels[level]
        shared = link.shared_by_group
        result.append(
            Span(
                members,
                inside,
                link.latency_seconds,
                link.bandwidth_bytes_per_second / (devices if shared else 1),
                link.bandwidth_bytes_per_second / (devices // inside if shared else 1),
            )
        )
    return tuple(result)


def _reduce_scatter(levels: Sequence[Span], bytes_: float) -> float:
    return sum(
        (s.members - 1) * (s.latency_seconds + bytes_ / (s.inside * s.members) / s.all_bandwidth)
        for s in levels
    )


def _allgather(levels: Sequence[Span], bytes_: float) -> float:
    size = prod(s.members for s in levels)
    return _reduce_scatter(levels, bytes_ * size)


def _allreduce(levels: Sequence[Span], bytes_: float) -> float:
    return 2 * _reduce_scatter(levels, bytes_)


def _alltoall(levels: Sequence[Span], bytes_: float) -> float:
    size = prod(s.members for s in levels)
    return sum(
        (s.members - 1) * s.inside * (s.latency_seconds + bytes_ / size / s.all_bandwidth)
        for s in levels
    )


def _broadcast(levels: Sequence[Span], bytes_: float) -> float:
    return sum(
        (s.members - 1).bit_length() * s.latency_seconds + bytes_ / s.one_bandwidth for s in levels
    )


def _exchange(levels: Sequence[Span], bytes_: float) -> float:
    return max(s.latency_seconds + bytes_ / s.one_bandwidth for s in levels)


_FORMULAS: dict[str, Callable[[Sequence[Span], float], float]] = {
    "allgather": _allgather,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "exchange": _exchange,
    "reduce_scatter": _reduce_scatter,
}
COLLECTIVES = tuple(_FORMULAS)


def collective_seconds(kind: str, levels: Sequence[Span], bytes_: int) -> float:
    """Return the seconds of a collective, without the time to start it.

    Args:
        kind: one of `COLLECTIVES`.
        levels: the `spans` of the group.
        bytes_: bytes that one device holds before, or sends in a broadcast or exchange.

    Raises:
        OptionError: if ``kind`` is unknown or ``bytes_`` negative.
    """
    if kind not in _FORMULAS:
        raise OptionError(f"a collective is one of {', '.join(COLLECTIVES)}. Got {kind!r}.")
    if bytes_ < 0:
        raise OptionError(f"a collective moves a number of bytes. Got {bytes_}.")
    return _FORMULAS[kind](levels, bytes_)


def whole_nanoseconds(seconds: float) -> int:
    """Return the time in whole nanoseconds, at least 1."""
    return max(1, round(seconds * 1e9))
