"""What is known of a step when a space is asked for offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.search.watch import seconds_left

__all__ = ["Known"]


@dataclass
class Known:
    """What other spaces have offered, and what spaces tell of themselves.

    Attributes:
        price: nanoseconds of the fastest step that fits the memory, as it is executed; None where
            nothing fits.
        time: the search's sum of that step; None likewise.
        unlimited: the search's least sum of any strategy of the whole batch, whatever its memory.
        fits: whether some offer fits the memory that the search adds up.
        notes: for the plan.
        skipped: by space, the reason why nothing, or not everything, was looked at.
    """

    ENOUGH_MEMORY: ClassVar[str] = "there is memory enough"
    NO_TIME: ClassVar[str] = "search_seconds were over; allow more"

    price: int | None
    time: int | None
    unlimited: int
    fits: bool = False
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """Nanoseconds that a step has to undercut to be planned; None for no limit."""
        return None if self.price is None else round((1 - SAME_TIME) * self.price)

    @property
    def is_memory_short(self) -> bool:
        """Whether a step could be faster if a device had more memory."""
        return self.time is None or self.unlimited < (1 - SAME_TIME) * self.time

    def has_time(self, space: str) -> bool:
        """Whether there is time to look at a space; if not, that is why it is skipped."""
        if seconds_left():
            return True
        self.skipped[space] = self.NO_TIME
        return False
