"""Searches whose results are shared by requests that differ in their memory limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from tensoropt.planner.request import Request

__all__ = ["search_once", "shared_searches"]

_Result = TypeVar("_Result")

_results: ContextVar[dict[Hashable, Any] | None] = ContextVar("results", default=None)


@contextmanager
def shared_searches() -> Iterator[None]:
    """Let `search_once` store its results, for requests that differ in their memory limit alone."""
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def search_once(
    name: str, request: Request, devices: int, search: Callable[[], _Result]
) -> _Result:
    """Return the result of a search that does not depend on the memory limit.

    Within `shared_searches` the first call searches, and later calls with the same arguments return
    its result. Elsewhere each call searches.

    Args:
        name: distinguishes searches of one request.
        request: the step after its transformations.
        devices: the number of devices.
        search: returns the result, which no caller may change.
    """
    results = _results.get()
    if results is None:
        return search()
    transformed = request.rewrites, request.microbatches, request.space, request.algorithm
    key = name, devices, *transformed
    if key not in results:
        results[key] = search()
    result: _Result = results[key]
    return result
