"""Searches of one step that several memory limits share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from tensoropt.planner.request import Request

__all__ = ["search_once", "shared_searches"]

_Found = TypeVar("_Found")

_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("known", default=None)


@contextmanager
def shared_searches() -> Iterator[None]:
    """Let `search_once` remember what it finds, for requests that differ in their memory limit."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def search_once(name: str, request: Request, devices: int, search: Callable[[], _Found]) -> _Found:
    """The result of a search that depends on no memory limit.

    Within `shared_searches` the first call searches, and later calls with the same arguments return
    its result. Elsewhere each call searches.

    Args:
        name: tells searches of one request apart.
        request: the step after its transformations.
        devices: how many.
        search: makes the result, which no caller may change.
    """
    known = _known.get()
    if known is None:
        return search()
    transformed = request.rewrites, request.microbatches, request.space, request.algorithm
    key = name, devices, *transformed
    if key not in known:
        known[key] = search()
    found: _Found = known[key]
    return found
