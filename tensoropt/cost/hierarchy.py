"""Hierarchical collectives of ranks on several machines: steps within machines and across them.

`collectives.operations.hierarchy` runs them. Across machines, each machine sends as much as one
rank would. NCCL and Horovod run all-reduces in this way; here every kind of collective can.
"""

from __future__ import annotations

__all__ = ["LEAST_BYTES", "large_ones", "parts"]

LEAST_BYTES = 1 << 14
"""Below this size latency dominates, and one collective has less of it than several."""


def parts(kind: str, bytes_: int, inside: int, machines: int) -> tuple[tuple[str, bool, int], ...]:
    """Return the collectives that a hierarchical collective consists of, in order.

    Args:
        kind: kind of the collective.
        bytes_: bytes that a rank holds before.
        inside: members of a group on each machine.
        machines: number of machines that a group spans.

    Returns:
        For each its kind, whether it is within machines, and the bytes that a rank holds before.
        The result is empty for a broadcast or an exchange.
    """
    piece = -(-bytes_ // inside)
    return {
        "allgather": (("allgather", False, bytes_), ("allgather", True, bytes_ * machines)),
        "allreduce": (
            ("reduce_scatter", True, bytes_),
            ("allreduce", False, piece),
            ("allgather", True, piece),
        ),
        "alltoall": (("alltoall", True, bytes_), ("alltoall", False, bytes_)),
        "reduce_scatter": (("reduce_scatter", True, bytes_), ("reduce_scatter", False, piece)),
    }.get(kind, ())


def large_ones(kind: str, axes: tuple[int, ...], bytes_: int) -> bool:
    """Whether a collective is hierarchical on unknown links.

    An all-to-all is not, since it sends as much either way.
    """
    del axes
    return kind != "alltoall" and bytes_ >= LEAST_BYTES
