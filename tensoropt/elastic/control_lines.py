"""The line by which the first rank tells the supervisor of its job that a checkpoint is saved.

Work of the first rank that waits for a checkpoint begins with it, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tensoropt.elastic.rank_variables import RESTARTS_VARIABLE

__all__ = ["CONTROL_LINE", "at_checkpoint", "tell_checkpoint"]

CONTROL_LINE = b"\x1etensoropt checkpoint\x1e\n"
"""Written to standard error, and left out by the supervisor of what it passes on."""

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
