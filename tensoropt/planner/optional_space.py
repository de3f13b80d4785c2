"""Looking where nobody asked to look: a failure there is a note of the plan, and no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["first_line", "looked_at"]

Found = TypeVar("Found")

_LONGEST_REASON = 200


def looked_at(space: str, look: Callable[[], Found], without: Found, failures: list[str]) -> Found:
    """Return what looking at an optional space finds; ``without`` where that fails.

    A script that did not ask for the space is planned without it, whatever it raises. The ends of a
    search (``KeyboardInterrupt``, time) are no failures, and pass.

    Args:
        space: its name.
        look: looks at it.
        without: the result without it.
        failures: gets a note for the plan, with the reason.
    """
    try:
        return look()
    except Exception as error:
        failures.append(f"not looked at, as that failed: {space} ({first_line(error)})")
        return without


def first_line(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}"
