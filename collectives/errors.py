"""Errors of the collectives. A message states the rule, the value that came, and the remedy."""

from __future__ import annotations

__all__ = [
    "CollectiveError",
    "DTypeError",
    "GroupError",
    "NativeError",
    "ReducerError",
    "SequenceError",
    "ShapeError",
    "TransportError",
]


class CollectiveError(Exception):
    """The base class of all errors that this package raises on purpose."""


class GroupError(CollectiveError, ValueError):
    """The ranks do not form a group, or this process is not in the group."""


class ShapeError(CollectiveError, ValueError):
    """A dimension does not exist, or its size is no multiple of the number of ranks."""


class DTypeError(CollectiveError, TypeError):
    """Elements of this type cannot be moved, or cannot be reduced with this reducer."""


class ReducerError(CollectiveError, ValueError):
    """The reducer is not one of sum, max, min, prod."""


class SequenceError(CollectiveError, RuntimeError):
    """The order of the collectives is not fixed, or differs between ranks."""


class TransportError(CollectiveError, RuntimeError):
    """The processes cannot communicate: MPI is missing, is another MPI, or lacks threads."""


class NativeError(CollectiveError, RuntimeError):
    """The operators in C++ cannot run: no compiler, or too little shared memory."""
