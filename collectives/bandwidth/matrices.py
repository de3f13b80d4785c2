"""The collectives that are measured, and the matrices that they move."""

from __future__ import annotations

from collections.abc import Callable

from collectives.errors import CollectiveError
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.broadcast import Broadcast
from collectives.operations.kinds.exchange import Exchange
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.windows import MemberWindows

__all__ = [
    "KINDS",
    "RUNS",
    "SHORT_RUN_BYTES",
    "collective_maker",
    "matrix_shape",
    "measured_bytes",
    "measured_dims",
]

MakeCollective = Callable[[int, tuple[int, ...], int], Collective]
"""Makes a collective from a group's size, an array's shape and a dimension."""


def _neighbours(size: int, extent: int) -> MemberWindows:
    """Return the windows with which every member sends its whole shard to the next member."""
    starts = [extent * (member - 1) for member in range(size)]
    return MemberWindows.of_group(starts, 2 * extent, extent, size)


_COLLECTIVES: dict[str, MakeCollective] = {
    "allgather": lambda _, __, dim: Allgather(dim),
    "allreduce": lambda _, __, ___: Allreduce("sum"),
    "alltoall": lambda _, __, dim: Alltoall(dim, 1 - dim),
    "broadcast": lambda _, __, ___: Broadcast(0),
    "exchange": lambda size, shape, dim: Exchange(dim, _neighbours(size, shape[dim])),
    "reduce_scatter": lambda _, __, dim: ReduceScatter(dim, "sum"),
}
KINDS = tuple(_COLLECTIVES)
"""The collectives that can be measured."""

RUNS = {
    "allgather": ("whole", "long", "short"),
    "alltoall": ("long", "short"),
    "reduce_scatter": ("whole", "long", "short"),
}
"""How the shards that a collective cuts or joins lie in memory. ``whole``: each shard is one run;
``long`` and ``short``: a shard is several runs, copied one by one, and ``short`` runs have
``SHORT_RUN_BYTES``. The memory layout does not change the time of the other kinds."""

SHORT_RUN_BYTES = 128


def collective_maker(kind: str) -> MakeCollective:
    """Return the function that makes collectives of a kind.

    Raises:
        CollectiveError: if ``kind`` is unknown.
    """
    if kind not in _COLLECTIVES:
        raise CollectiveError(f"a measured collective is one of {', '.join(KINDS)}. Got {kind!r}.")
    return _COLLECTIVES[kind]


def measured_bytes(bytes_: int, size: int, runs: str = "") -> int:
    """Return the bytes of the matrix that a group of ``size`` moves in place of ``bytes_``."""
    rows, columns = matrix_shape(bytes_, size, runs)
    return 4 * rows * columns


def measured_dims(kind: str, runs: str) -> tuple[int, int]:
    """Return the two dimensions that are cut or joined in turn."""
    return {"whole": (0, 0), "": (0, 1)}.get(runs, (0, 1) if kind == "alltoall" else (1, 1))


def matrix_shape(bytes_: int, size: int, runs: str = "") -> tuple[int, int]:
    """Return the shape of a float32 matrix of about ``bytes_`` bytes.

    Both dimensions are multiples of ``size``.
    """
    elements = max(1, -(-bytes_ // 4))
    rows = size
    while rows * rows * 16 < elements:
        rows *= 2
    short = SHORT_RUN_BYTES // 4 * size
    if runs == "short" and elements > short * size:
        rows = size * -(-elements // (short * size))
    columns = -(-elements // rows)
    return rows, -(-columns // size) * size
