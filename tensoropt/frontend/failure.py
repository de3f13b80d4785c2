"""A rank that fails ends the whole job, and its reason stands once in the output."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from tensoropt.errors import TensorOptError

__all__ = ["install"]

_TURN_SECONDS = 0.4
_LONGEST_TURN_SECONDS = 12.0


def install(rank: int, abort: Callable[[int], None], at_end: Callable[[], None]) -> None:
    """Take over what happens when this rank's script fails or ends.

    Args:
        rank: this rank.
        abort: ends the job on all ranks with an exit status.
        at_end: called when the script ends without an error; it may raise, if the other ranks
            have not reached their end.

    An error usually meets several ranks at once. They take turns: the lowest prints its reason
    and ends the job before the next one would print the same.
    """
    failed = False

    def fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal failed
        failed = True
        time.sleep(min(rank * _TURN_SECONDS, _LONGEST_TURN_SECONDS))
        sys.stdout.flush()
        if not isinstance(error, TensorOptError):
            traceback.print_exception(kind, error, trace)
        else:
            frames = traceback.extract_tb(trace)
            script = [frame for frame in frames if "tensoropt" not in frame.filename.split("/")]
            sys.stderr.write("".join(traceback.format_list(script or frames)))
        name = kind.__name__
        sys.stderr.write(f"tensoropt: rank {rank} failed and ends the job: {name}: {error}\n")
        sys.stderr.flush()
        try:
            abort(1)
        finally:
            os._exit(1)  # the launcher is killing this process; leave nothing more to print

    def end() -> None:
        if failed:
            return
        try:
            at_end()
        except BaseException as error:
            fail(type(error), error, error.__traceback__)

    sys.excepthook = fail
    atexit.register(end)
