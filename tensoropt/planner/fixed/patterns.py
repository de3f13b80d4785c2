"""Patterns of layers' names: globs, and rows of like layers as tables show them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

__all__ = ["matcher"]

_RANGE = re.compile(r"(?<![\[\d-])(\d+)-(\d+)(?![\]\d-])")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a name matches a pattern.

    Args:
        pattern: a glob pattern, in which a star also matches "/". A range of numbers, as in
            "encoder/layer1-6", matches each number in it.
    """
    ranges: list[range] = []
    parts, end = [], 0
    for match in _RANGE.finditer(pattern):
        parts += [_glob(pattern[end : match.start()]), r"(\d+)"]
        ranges.append(range(int(match[1]), int(match[2]) + 1))
        end = match.end()
    expression = re.compile("".join([*parts, _glob(pattern[end:])]), re.DOTALL)

    def matches(name: str) -> bool:
        if name == pattern:
            return True
        found = expression.fullmatch(name)
        return found is not None and all(
            int(number) in numbers for number, numbers in zip(found.groups(), ranges, strict=True)
        )

    return matches


def _glob(text: str) -> str:
    """Return the regular expression of a part of a glob pattern."""
    return fnmatch.translate(text)[:-2]  # without the mark of the end
