"""A process that passes on the standard error of a rank, without the chatter of libraries.

    python -I -S chatter.py LOG QUIET

It reads the rank's lines from standard input, and writes them to standard error. With QUIET 1 it
holds back lines that match `CHATTER`, and TensorOpt's notes. LOG, if it is not empty, is a file for
all lines. This is a process and not a thread, so that what a rank has written before it was killed
is passed on. It ends when the rank and its children have closed their standard error.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Iterator

__all__ = ["CHATTER", "NOTE", "Filter"]

NOTE = b"\x1f"
"""The first byte of a line that is a note, and not part of it."""

_STAMP = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: "
_ABSL = rb"\d{4} \d\d:\d\d:\d+\.\d+ +\d+ "
_KNOWN = rb"|".join(
    (
        rb"Unable to register cu\w+ factory",
        rb"computation placer already registered",
        rb"failed call to cuInit",
        rb"Could not find TensorRT",
        rb"Could not find cuda drivers",
        rb"was changed by setting attribute after it was run by a session",
        rb"Optimization loop failed: CANCELLED",  # a data set that ends early
        rb"Local rendezvous is aborting with status: OUT_OF_RANGE",
        rb"End of sequence",
        rb"GPU trace was not collected",
    )
)
CHATTER = re.compile(
    rb"|".join(
        (
            _STAMP + rb"I ",
            rb"I" + _ABSL,
            _STAMP + rb"[WE] .*(?:" + _KNOWN + rb")",
            rb"[WE]" + _ABSL + rb".*(?:" + _KNOWN + rb")",
            rb"WARNING: All log messages before absl::InitializeLog\(\)",
            rb"To enable the following instructions: ",
            rb"WARNING:tensorflow:From .* is deprecated",
        )
    )
)
"""Lines of TensorFlow, XLA, oneDNN and absl that tell a user nothing to act on.

All lines of the level of information are; warnings and errors only if their text is known.
"""

_ADVICE = re.compile(rb"WARNING:tensorflow:From .* is deprecated and will be removed")
_ADVICE_LINES = 2  # after `_ADVICE`: "Instructions for updating:" and the instructions
_LINES = re.compile(rb"[^\n]*\n|[^\n]+")
_FIRST_BYTES = b"0123456789EIWT" + NOTE
"""The bytes with which a line begins that may be held back."""
_PART_SECONDS = 0.2
"""Time for the rest of a line that may be held back; others are passed on in parts."""


class Filter:
    """Passes on lines that are not chatter.

    Args:
        write: receives the bytes to show.
        keep: receives all bytes.
        is_quiet: whether chatter is held back.
    """

    def __init__(
        self, write: Callable[[bytes], object], keep: Callable[[bytes], object], is_quiet: bool
    ) -> None:
        self._write, self._keep, self._is_quiet = write, keep, is_quiet
        self._held = b""
        self._is_in_line = False  # whether the begin of the line has been passed on
        self._advice_lines = 0  # lines to hold back, whatever they are

    @property
    def holds(self) -> bool:
        """Whether a part of a line waits for the rest."""
        return bool(self._held)

    def take(self, content: bytes) -> None:
        """Take the next bytes."""
        shown = b"".join(self._shown(self._held + content))
        if shown:
            self._write(shown)

    def _shown(self, content: bytes) -> Iterator[bytes]:
        self._held = b""
        for line in _LINES.findall(content):
            may_be_held = not self._is_in_line and (line[:1] in _FIRST_BYTES or self._advice_lines)
            if may_be_held and not line.endswith(b"\n"):
                self._held = line
                return
            yield self._line(line)

    def _line(self, line: bytes) -> bytes:
        """The bytes to show of a line, or of the rest of one."""
        begins, self._is_in_line = not self._is_in_line, not line.endswith(b"\n")
        is_note = begins and line.startswith(NOTE)
        line = line[1:] if is_note else line
        self._keep(line)
        if not begins or not self._is_quiet:
            return line
        if self._advice_lines:
            self._advice_lines -= 1
            return b""
        if _ADVICE.match(line):
            self._advice_lines = _ADVICE_LINES
        return b"" if is_note or CHATTER.match(line) else line

    def flush(self) -> None:
        """Take what is held as it is: its rest is late, or there is none."""
        held, self._held = self._held, b""
        if held:
            self._write(self._line(held))


def _main(log: str, quiet: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) if log else -1
    lines = Filter(
        lambda content: _write_all(2, content),
        lambda content: _write_all(file, content) if log else None,
        quiet == "1",
    )
    while True:
        if lines.holds and not select.select([0], [], [], _PART_SECONDS)[0]:
            lines.flush()
        content = os.read(0, 1 << 16)
        if not content:
            lines.flush()
            return
        lines.take(content)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write to a file; if its reader has gone, read on all the same, so that the rank goes on."""
    while content:
        try:
            content = content[os.write(descriptor, content) :]
        except BrokenPipeError:
            return


if __name__ == "__main__":
    _main(*sys.argv[1:])
