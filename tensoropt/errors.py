"""Errors that a user can meet. A message states the rule, the value given, and the remedy."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """TensorFlow's errors, which the frontend adds for scripts that catch them."""


__all__ = [
    "CheckpointError",
    "DescriptionError",
    "FeedError",
    "FetchError",
    "GraphError",
    "InfeasibleError",
    "LayoutError",
    "OptionError",
    "PlanError",
    "RankMismatchError",
    "SearchSizeError",
    "StateError",
    "TensorOptError",
]

_MOST_CHARACTERS = 1000  # of a `PlanError`'s message
_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = _SHORTENED.maxother = 100  # a plan has thousands of characters


class TensorOptError(Exception):
    """Root of every error that TensorOpt raises on purpose."""


class OptionError(TensorOptError, ValueError):
    """An argument is not one of the values that the function takes."""

    @classmethod
    def one_of(cls, what: str, got: object, known: Iterable[str]) -> OptionError:
        """The error for an unknown name; it suggests the most similar known name.

        Args:
            what: the kind of the name, with its article: "an algorithm".
            got: the unknown name.
            known: the valid names.
        """
        names = list(known)
        near = get_close_matches(str(got), names, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Give one of these."
        return cls(f"{what} is one of {', '.join(names)}. Got {_SHORTENED.repr(got)}. {remedy}")

    @classmethod
    def refuse(cls, unknown: Iterable[str], function: Callable[..., Any]) -> None:
        """Refuse keyword arguments that a function does not have.

        Args:
            unknown: the names of the arguments.
            function: the function that received them.

        Raises:
            OptionError: if ``unknown`` has a name.
        """
        for name in unknown:
            parameters = inspect.signature(function).parameters.values()
            known = [item.name for item in parameters if item.kind != item.VAR_KEYWORD]
            raise cls.one_of(f"an argument of {function.__name__}", name, known)


class StateError(TensorOptError, RuntimeError):
    """A call came too early or too late (``run`` before ``build_execution_graph``)."""


class GraphError(TensorOptError, ValueError):
    """The script's graph cannot be read as it stands (an unknown shape, a missing operator)."""


class FeedError(TensorOptError, ValueError):
    """A fed value does not fit its placeholder."""


class FetchError(TensorOptError, ValueError):
    """A fetch is not in the script's graph."""


class LayoutError(TensorOptError, ValueError):
    """A mesh, layout or configuration breaks a rule of its own."""


class DescriptionError(TensorOptError, ValueError):
    """An operator's TDL description is malformed, missing, or registered twice."""


class PlanError(TensorOptError, ValueError):
    """A plan, cluster or profile file is malformed, or was made for something else.

    The message quotes the file. The middle of a long message is left out.
    """

    def __init__(self, message: str) -> None:
        if len(message) > _MOST_CHARACTERS:
            half = _MOST_CHARACTERS // 2 - 3
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


class InfeasibleError(TensorOptError, ValueError):
    """No strategy fits the memory limit."""


class CheckpointError(TensorOptError, RuntimeError):
    """A checkpoint is not in a folder that all ranks can read."""


class SearchSizeError(TensorOptError, MemoryError):
    """A search would have to hold more points at once than fit a machine."""


class RankMismatchError(TensorOptError, RuntimeError):
    """The ranks do not run the same program."""
