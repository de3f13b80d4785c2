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
    """A dimension does not exist, cannot be divided among the ranks, or has windows that do not fit
    the group."""


class DTypeError(CollectiveError, TypeError):
    """Elements of this type cannot be moved, or cannot be reduced with this reducer."""


class ReducerError(CollectiveError, ValueError):
    """The reducer is not one of sum, max, min, prod."""


class SequenceError(CollectiveError, RuntimeError):
    """The collectives of a sequence have no static order: they lie in several graphs, or sequences
    are not left in the reverse order of entering."""


class TransportError(CollectiveError, RuntimeError):
    """The processes cannot communicate. MPI or Horovod is missing, does not fit the launcher or
    lacks threads, or ranks in one process wait for each other."""


class NativeError(CollectiveError, RuntimeError):
    """The operators in C++ cannot run: no compiler, library, network or shared memory for them."""
