"""What is known of a step when a space is asked for offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.offers.offer import Points
from tensoropt.planner.request import Request
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["Known"]


@dataclass
class Known:
    """What other spaces have offered, and what spaces tell of themselves.

    Attributes:
        price: nanoseconds of the fastest step that fits the memory, as it is executed; None where
            nothing fits.
        time: the search's sum of the fastest point of that offer that fits; None likewise.
        unlimited: the search's least sum of any strategy that keeps all, whatever its memory, by
            the step's substitutions and number of microbatches.
        fits: whether some offer fits the memory that the search adds up.
        notes: for the plan.
        skipped: by space, the reason why nothing, or not everything, was looked at.
    """

    ENOUGH_MEMORY: ClassVar[str] = "there is memory enough"
    NO_TIME: ClassVar[str] = "search_seconds were over; allow more"

    price: int | None = None
    time: int | None = None
    unlimited: dict[tuple[tuple[Rewrite, ...], int], int] = field(default_factory=dict)
    fits: bool = False
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """Nanoseconds that a step has to undercut to be planned; None for no limit."""
        return None if self.price is None else round((1 - SAME_TIME) * self.price)

    def could_be_faster(self, request: Request) -> bool:
        """Whether a step would be faster than the known one if a device had more memory.

        Keeping less takes no less time, so that this bounds steps that keep less, too. A step that
        was not searched with all kept is taken to be slower: those of fewer microbatches are.
        """
        if self.time is None:
            return True
        least = self.unlimited.get((request.rewrites, request.microbatches))
        return least is not None and least < (1 - SAME_TIME) * self.time

    def searched(self, request: Request, points: Points) -> None:
        """Note the points of a step that keeps all."""
        self.unlimited[request.rewrites, request.microbatches] = points[-1][1]

    def has_time(self, space: str) -> bool:
        """Whether there is time to look at a space; if not, that is why it is skipped."""
        if seconds_left():
            return True
        self.skipped[space] = self.NO_TIME
        return False
