"""Numbers for large values, which are compared and looked up faster than the values."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["ValueNumbers"]


class ValueNumbers:
    """Gives each distinct value a number. A value is looked up by identity before by equality."""

    __slots__ = ("_by_identity", "_by_value")

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[Hashable, int]] = {}
        self._by_value: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        """Return the number of a value. Equal values have equal numbers, counted by first use."""
        entry = self._by_identity.get(id(value))
        if entry is None:
            number = self._by_value.setdefault(value, len(self._by_value))
            # The entry holds the value, so that no other value gets its id.
            entry = self._by_identity[id(value)] = value, number
        return entry[1]
