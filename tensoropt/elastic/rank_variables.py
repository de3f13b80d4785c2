"""What ``tensoropt run`` tells its ranks by environment variables, and they tell it by a line."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = [
    "CONTROL_LINE",
    "PLAN_AHEAD_VARIABLE",
    "PLAN_VARIABLE",
    "RESTARTS_VARIABLE",
    "THREADS_VARIABLE",
    "TRACE_VARIABLE",
    "at_checkpoint",
    "tell_checkpoint",
]

RESTARTS_VARIABLE = "TENSOROPT_RESTARTS"
"""Environment variable of each rank under ``tensoropt run``: the earlier starts of the job."""

THREADS_VARIABLE = "TENSOROPT_THREADS"
"""Environment variable: the number of compute threads of each rank."""

PLAN_VARIABLE = "TENSOROPT_PLAN"
"""Environment variable: a plan file that `find_strategy` returns instead of a search."""

TRACE_VARIABLE = "TENSOROPT_TRACE"
"""Environment variable: folder for a timeline of each rank's steps."""

PLAN_AHEAD_VARIABLE = "TENSOROPT_PLAN_AHEAD"
"""Environment variable: the present start, and those to plan for in advance; see
`elastic.hosts.next_starts`."""

CONTROL_LINE = b"\x1etensoropt checkpoint\x1e\n"
"""Written to standard error when a checkpoint is saved; the supervisor does not pass it on."""

_waiting: list[Callable[[], None]] = []


def at_checkpoint(begin: Callable[[], None]) -> None:
    """Call ``begin`` when the next checkpoint is whole, once. The first rank calls."""
    _waiting.append(begin)


def tell_checkpoint() -> None:
    """Tell the supervisor, if there is one, that a checkpoint is whole. The first rank calls."""
    if RESTARTS_VARIABLE in os.environ:
        os.write(2, CONTROL_LINE)
    begun = []
    while _waiting:  # other threads may add to it
        begun.append(_waiting.pop(0))
    for begin in begun:
        begin()
