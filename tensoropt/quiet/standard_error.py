"""Starts the filter of a rank's standard error, and writes the lines that it knows.

The filter starts at ``import tensoropt`` where a launcher has started the process, or
``TENSOROPT_LOG`` is set: before TensorFlow is imported, if TensorOpt is imported first. It replaces
descriptor 2, which C++ and child processes write to as well.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tensoropt.errors import OptionError
from tensoropt.quiet.chatter import NOTE

__all__ = [
    "LOG_VARIABLE",
    "VERBOSE_VARIABLE",
    "filter_standard_error",
    "without_chatter",
    "write_note",
    "write_plan",
]

VERBOSE_VARIABLE = "TENSOROPT_VERBOSE"
"""Environment variable: 1 to hold back nothing."""
LOG_VARIABLE = "TENSOROPT_LOG"
"""Environment variable: a file for all lines of a rank, whose number comes before the suffix."""

_END_SECONDS = 1.0
"""Time for a filter to pass on the last lines, at the end of the process or of a context."""

_filter: subprocess.Popen[bytes] | None = None  # of this process until its end; None without one
_hides_notes = False  # whether it holds back lines


def filter_standard_error(rank: str | None) -> None:
    """Start the filter, unless it has started, has nothing to do, or nothing to read.

    Args:
        rank: the number of this rank; None if no launcher has started this process.

    Raises:
        OptionError: if a variable has a value that it does not take, or the folder of the log does
            not exist.
    """
    global _filter, _hides_notes
    log, is_quiet = _log_of(rank), rank is not None and not _is_verbose()
    if _filter is not None or not (log or is_quiet) or not _can_start():
        return
    _filter, before = _started(log, is_quiet)
    _hides_notes = is_quiet
    atexit.register(_end, _filter, before)


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back the lines of libraries that the filter knows, while the context lasts."""
    if _filter is not None or _is_verbose() or not _can_start():
        yield
        return
    process, before = _started("", is_quiet=True)
    try:
        yield
    finally:
        _end(process, before)
        os.close(before)


def _can_start() -> bool:
    """Whether this process has a standard error, and knows the program that runs a filter."""
    return sys.stderr is not None and bool(sys.executable)


def _started(log: str, is_quiet: bool) -> tuple[subprocess.Popen[bytes], int]:
    """Start a filter of descriptor 2. Return the filter, and a copy of the former descriptor."""
    reading, writing = os.pipe()
    program = str(Path(__file__).with_name("chatter.py"))
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", program, log, str(int(is_quiet))],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # A launcher, or Ctrl-C, ends the process group of a rank.
    )
    before = os.dup(2)
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(reading)
    os.close(writing)
    return process, before


def _end(process: subprocess.Popen[bytes], before: int) -> None:
    """Restore descriptor 2, and wait until the filter has passed on the last lines.

    The filter goes on for children of this process that still write to it.
    """
    sys.stderr.flush()
    os.dup2(before, 2)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.returncode = 0  # It ends with the last child, so Python need not warn of it.


def _is_verbose() -> bool:
    text = os.environ.get(VERBOSE_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise OptionError(
            f"{VERBOSE_VARIABLE} is 1 to hold back no line of libraries, else 0. Got {text!r}; "
            "unset it."
        )
    return text == "1"


def _log_of(rank: str | None) -> str:
    """The path of this rank's log; empty for none."""
    text = os.environ.get(LOG_VARIABLE, "")
    if not text:
        return ""
    path = Path(text).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise OptionError(
            f"{LOG_VARIABLE} is a file in a folder that is there. Got {text!r}; make its folder, "
            "or name a file in another one."
        )
    return str(path if rank is None else path.with_name(f"{path.stem}.{rank}{path.suffix}"))


def write_note(text: str) -> None:
    """Write a line of TensorOpt that a quiet run shows in its log alone."""
    mark = "" if _filter is None else NOTE.decode()
    sys.stderr.write(f"{mark}tensoropt: {text}\n")


def write_plan(plan: str, notes: int) -> None:
    """Write the line of a plan, which counts the notes that a quiet run does not show."""
    hint = f"; {notes} note{'s' * (notes > 1)} with {VERBOSE_VARIABLE}=1"
    sys.stderr.write(f"tensoropt: {plan}{hint if notes and _hides_notes else ''}\n")
