"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """The text of a table, with columns as wide as their widest entry and two spaces apart.

    Args:
        header: one title per column.
        rows: the entries of each line.
        right: for each column, whether it is aligned to the right (numbers).
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def render(line: Sequence[str]) -> str:
        cells = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        )
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([render(lines[0]), rule, *map(render, lines[1:])])
