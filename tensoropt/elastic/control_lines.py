"""The line by which the first rank tells the supervisor of its job that a checkpoint is saved."""

from __future__ import annotations

import os

from tensoropt.elastic.rank_variables import RESTARTS_VARIABLE

__all__ = ["CONTROL_LINE", "tell_checkpoint"]

CONTROL_LINE = b"\x1etensoropt checkpoint\x1e\n"
"""Written to standard error, and left out by the supervisor of what it passes on."""


def tell_checkpoint() -> None:
    """Tell the supervisor, if there is one, that a checkpoint is whole. The first rank calls."""
    if RESTARTS_VARIABLE in os.environ:
        os.write(2, CONTROL_LINE)
