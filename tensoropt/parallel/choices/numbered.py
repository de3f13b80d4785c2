"""Small numbers in place of large values: quicker to compare, and to look up."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Numbered"]


class Numbered:
    """A number for each different value, found by identity before it is compared."""

    __slots__ = ("_by_identity", "_by_value")

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[Hashable, int]] = {}
        self._by_value: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        """The number of all values that are equal to this one, in the order they came."""
        known = self._by_identity.get(id(value))
        if known is None:
            number = self._by_value.setdefault(value, len(self._by_value))
            known = self._by_identity[id(value)] = value, number  # keeps it: its id stays its own
        return known[1]
