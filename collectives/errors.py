"""Errors of the collectives. Each says the rule, what came instead, and the remedy."""

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
    """Root of every error that this package raises on purpose."""


class GroupError(CollectiveError, ValueError):
    """The ranks do not make a group, or this process is not one of them."""


class ShapeError(CollectiveError, ValueError):
    """A dimension does not exist, or does not divide by the size of the group."""


class DTypeError(CollectiveError, TypeError):
    """The elements cannot be moved, or cannot be reduced with this reducer."""


class ReducerError(CollectiveError, ValueError):
    """The reducer is not one of sum, max, min, prod."""


class SequenceError(CollectiveError, RuntimeError):
    """The collectives are not in one static order, or not in the same one on every rank."""


class TransportError(CollectiveError, RuntimeError):
    """The processes cannot talk to each other: no MPI, another MPI, or too low a thread level."""


class NativeError(CollectiveError, RuntimeError):
    """Operators in C++ cannot be had here: no compiler, or too little shared memory."""
