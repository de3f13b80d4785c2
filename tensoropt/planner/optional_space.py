"""Searches that the script did not ask for: a failure is a note of the plan, not an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["attempt", "first_line"]

Result = TypeVar("Result")

_LONGEST_REASON = 200
"""The most characters of an error's message in a note."""


def attempt(space: str, search: Callable[[], Result], fallback: Result, notes: list[str]) -> Result:
    """Return the result of an optional search, or ``fallback`` if the search fails.

    The script did not ask for the search, so no `Exception` of it may stop the planning. The end of
    a search by ``KeyboardInterrupt`` or by time is no failure; it is raised.

    Args:
        space: the name of the searched space.
        search: the search.
        fallback: the result if the search fails.
        notes: the notes of the plan. A failed search adds one.
    """
    try:
        return search()
    except Exception as error:
        notes.append(f"left out, because its search failed: {space} ({first_line(error)})")
        return fallback


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}"
