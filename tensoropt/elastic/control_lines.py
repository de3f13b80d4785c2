"""The line by which the first rank tells the supervisor of its job that a checkpoint is saved."""

from __future__ import annotations

import os

__all__ = ["CONTROL_LINE", "RESTARTS_VARIABLE", "tell_checkpoint"]

RESTARTS_VARIABLE = "TENSOROPT_RESTARTS"
"""Environment variable of each rank under ``tensoropt run``: the number of starts before."""

CONTROL_LINE = b"\x1etensoropt checkpoint\x1e\n"
"""Written to standard error, and left out by the supervisor of what it passes on."""


def tell_checkpoint() -> None:
    """Tell the supervisor, if there is one, that a checkpoint is whole. The first rank calls."""
    if RESTARTS_VARIABLE in os.environ:
        os.write(2, CONTROL_LINE)
