"""Collectives between the processes of a job: on NumPy arrays, and as TensorFlow operations.

`world` gives the `Group` of all processes; its methods move NumPy arrays. The functions named
after MPI's collectives are TensorFlow operations with gradients, and a `Sequence` keeps those of
one graph in one order on every process. Neither MPI nor TensorFlow is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from collectives.errors import (
    CollectiveError,
    DTypeError,
    GradientError,
    GroupError,
    ReducerError,
    SequenceError,
    ShapeError,
    TransportError,
)
from collectives.group import Group, world
from collectives.reduction import REDUCERS

if TYPE_CHECKING:
    from collectives.operations.allgather import allgather
    from collectives.operations.allreduce import allreduce
    from collectives.operations.alltoall import alltoall
    from collectives.operations.broadcast import broadcast
    from collectives.operations.exchange import exchange, exchange_sum
    from collectives.operations.reduce_scatter import reduce_scatter
    from collectives.sequence import Sequence

__all__ = [
    "REDUCERS",
    "CollectiveError",
    "DTypeError",
    "GradientError",
    "Group",
    "GroupError",
    "ReducerError",
    "Sequence",
    "SequenceError",
    "ShapeError",
    "TransportError",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "exchange",
    "exchange_sum",
    "reduce_scatter",
    "world",
]

# What imports TensorFlow, and where it lives.
_NEEDS_TENSORFLOW = {
    "Sequence": "collectives.sequence",
    "allgather": "collectives.operations.allgather",
    "allreduce": "collectives.operations.allreduce",
    "alltoall": "collectives.operations.alltoall",
    "broadcast": "collectives.operations.broadcast",
    "exchange": "collectives.operations.exchange",
    "exchange_sum": "collectives.operations.exchange",
    "reduce_scatter": "collectives.operations.reduce_scatter",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TENSORFLOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_NEEDS_TENSORFLOW[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
