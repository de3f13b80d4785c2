"""Tables and texts: plain text by `str`, and drawn for its width on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported where a terminal is drawn on: few starts do
    from rich.console import JustifyMethod, RenderableType
    from rich.table import Table

__all__ = ["Report", "table", "write"]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table; `str` gives columns as wide as their widest entry and two spaces apart."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

        def render(line: Sequence[str]) -> str:
            cells = (
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(line, widths, self.right, strict=True)
            )
            return "  ".join(cells).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([render(self.header), rule, *map(render, self.rows)])

    def __rich__(self) -> Table:
        """The table for a terminal, which breaks long entries within their column."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for title, to_right in zip(self.header, self.right, strict=True):
            side: JustifyMethod = "right" if to_right else "left"
            drawn.add_column(Text(title), justify=side, no_wrap=to_right, overflow="fold")
        for row in self.rows:
            drawn.add_row(*map(Text, row))
        return drawn


@dataclass(frozen=True, slots=True, init=False)
class Report:
    """Tables and texts, one below the other.

    Attributes:
        parts: tables, reports, and texts of one or more lines.
    """

    parts: tuple[_Table | Report | str, ...]

    def __init__(self, *parts: _Table | Report | str) -> None:
        object.__setattr__(self, "parts", parts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))

    def __rich_console__(self, *_: object) -> Iterator[RenderableType]:
        """The parts for a terminal."""
        from rich.text import Text

        for part in self.parts:
            yield Text(part) if isinstance(part, str) else part


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Report:
    """A table.

    Args:
        header: one title per column.
        rows: the entries of each line.
        right: for each column, whether it is aligned to the right (numbers).
    """
    return Report(_Table(header, rows, right))


def write(*parts: Report | str) -> None:
    """Write to standard output: drawn for a terminal, else as plain text without broken lines."""
    report = Report(*parts)
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(report)
    else:
        sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
