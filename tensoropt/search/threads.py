"""Independent parts of a search on all cores; compiled kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import cache
from math import inf
from typing import TypeVar

from tensoropt.search.effort import WORTH_A_THREAD

__all__ = ["in_threads", "threads_for", "use_at_most"]


Item = TypeVar("Item")
Result = TypeVar("Result")

_most = inf  # threads of a search, in this process


def use_at_most(threads: int) -> None:
    """Let searches of this process use at most this many threads."""
    global _most
    _most = threads


@cache
def _cores() -> int:
    """The number of threads that can run at the same time."""
    return os.cpu_count() or 1


def threads_for(additions: float) -> int:
    """Return the number of threads that are worth starting for some additions of sweeps."""
    return max(1, int(min(_cores(), _most, additions / WORTH_A_THREAD)))


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], additions: float = inf
) -> list[Result]:
    """Return ``function`` of every item, in order, computed on several threads if that is worth it.

    Each thread has the context variables of the caller; the watch of a search is one.

    Args:
        function: applied to each item.
        items: its arguments.
        additions: the additions of all calls, as those of sweeps, approximately.

    Raises:
        Whatever ``function`` raises, for the first item that does.
    """
    workers = min(len(items), threads_for(additions))
    if workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(
            pool.map(Context.run, [copy_context() for _ in items], [function] * len(items), items)
        )
