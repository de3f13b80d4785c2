"""The parts of a collective of ranks on several machines: within machines, and across them.

`collectives.operations.hierarchy` runs them. In place of a ring over all ranks a machine sends what
one rank would: NCCL's and Horovod's hierarchical all-reduce, for each kind.
"""

from __future__ import annotations

__all__ = ["LEAST_BYTES", "large_ones", "parts"]

LEAST_BYTES = 1 << 14
"""Of less, latency is all, and one collective has less of it than several."""


def parts(kind: str, bytes_: int, inside: int, machines: int) -> tuple[tuple[str, bool, int], ...]:
    """The collectives that make one, in order.

    Args:
        kind: of the whole.
        bytes_: that a rank holds before.
        inside: members of a group on each machine.
        machines: that a group spans.

    Returns:
        Of each its kind, whether it is within machines, and the bytes that a rank holds before;
        none for a broadcast or an exchange.
    """
    slice_ = -(-bytes_ // inside)
    return {
        "allgather": (("allgather", False, bytes_), ("allgather", True, bytes_ * machines)),
        "allreduce": (
            ("reduce_scatter", True, bytes_),
            ("allreduce", False, slice_),
            ("allgather", True, slice_),
        ),
        "alltoall": (("alltoall", True, bytes_), ("alltoall", False, bytes_)),
        "reduce_scatter": (("reduce_scatter", True, bytes_), ("reduce_scatter", False, slice_)),
    }.get(kind, ())


def large_ones(kind: str, axes: tuple[int, ...], bytes_: int) -> bool:
    """What goes in parts where links are not known; an all-to-all sends as much in one."""
    del axes
    return kind != "alltoall" and bytes_ >= LEAST_BYTES
