"""Searches whose results are shared by requests that differ in their memory limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tensoropt.planner.request import Request

__all__ = ["search_once"]

_Result = TypeVar("_Result")


def search_once(
    name: str, request: Request, devices: int, search: Callable[[], _Result]
) -> _Result:
    """Return the result of a search that does not depend on the memory limit.

    If the request stores results, only the first call with the same arguments searches.

    Args:
        name: distinguishes searches of one request.
        request: the step after its transformations.
        devices: the number of devices.
        search: returns the result, which no caller may change.
    """
    results = request.results
    if results is None:
        return search()
    pieces = request.shares, request.units
    transformed = request.rewrites, request.microbatches, request.space, *pieces
    key = name, devices, request.algorithm, request.closes, *transformed
    if key not in results:
        results[key] = search()
    result: _Result = results[key]
    return result
