"""Groups of variables, or of slices of variables, that are in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["groups_within"]

Item = TypeVar("Item")


def groups_within(
    most_bytes: int, items: Iterable[Item], bytes_of: Callable[[Item], int]
) -> list[list[Item]]:
    """Divide items, in order, into groups of at most ``most_bytes`` bytes, or of one item."""
    groups: list[list[Item]] = []
    group_bytes = 0
    for item in items:
        item_bytes = bytes_of(item)
        if not groups or group_bytes + item_bytes > most_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(item)
        group_bytes += item_bytes
    return groups
