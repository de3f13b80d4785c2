"""Independent parts of a search on all cores; compiled kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import cache
from typing import TypeVar

__all__ = ["cores", "in_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@cache
def cores() -> int:
    """How many threads can run at the same time."""
    return os.cpu_count() or 1


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``function`` of every item, in their order, on as many threads as there are cores.

    Each has the context variables of the caller, as the watch of a search is one.

    Raises:
        Whatever ``function`` raises, of the first item that does.
    """
    workers = min(len(items), cores())
    if workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(
            pool.map(Context.run, [copy_context() for _ in items], [function] * len(items), items)
        )
