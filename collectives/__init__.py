"""Collectives between the ranks of a job: on NumPy arrays, and inside TensorFlow graphs.

`world` gives the `Group` of all processes; its methods move NumPy arrays. In a graph,
`collectives.operations.calls` runs the same operations on tensors, and a `Sequence` keeps those
of one graph in one order on every rank. Neither MPI nor TensorFlow is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collectives.errors import (
    CollectiveError,
    DTypeError,
    GroupError,
    ReducerError,
    SequenceError,
    ShapeError,
    TransportError,
)
from collectives.group import Group, world
from collectives.reduction import REDUCERS

if TYPE_CHECKING:
    from collectives.sequence import Sequence

__all__ = [
    "REDUCERS",
    "CollectiveError",
    "DTypeError",
    "Group",
    "GroupError",
    "ReducerError",
    "Sequence",
    "SequenceError",
    "ShapeError",
    "TransportError",
    "world",
]


def __getattr__(name: str) -> Any:
    if name != "Sequence":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from collectives.sequence import Sequence

    return Sequence


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
