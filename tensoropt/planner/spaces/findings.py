"""The findings of a market, which it shares with the spaces that it asks for offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.offers.offer import Points
from tensoropt.planner.prices.dry_runs import NO_TIME
from tensoropt.planner.request import Request
from tensoropt.search.multilevel.coarse_to_fine import Known
from tensoropt.search.watch import is_stopped_by_user, seconds_left
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["Findings"]


@dataclass
class Findings:
    """The best offer so far, and the reports of the spaces.

    Attributes:
        price: the predicted nanoseconds of the fastest step that fits the memory, as it is
            executed; None if nothing fits yet.
        unlimited: the fastest step of strategies that keep all tensors, without a limit of memory,
            by the step's substitutions and its number of microbatches.
        known: strategies of the batch at once, or of the last step in microbatches, with which
            searches of similar steps begin.
        fits: whether an offer fits the memory as the search adds it up.
        notes: notes for the plan.
        skipped: for each space the reason why it was not searched, or not completely.
    """

    ENOUGH_MEMORY: ClassVar[str] = "there is memory enough"
    ENDED: ClassVar[str] = "search_seconds were over before one was found; allow more"

    price: int | None = None
    unlimited: dict[tuple[tuple[Rewrite, ...], int], int] = field(default_factory=dict)
    known: Known | None = None
    fits: bool = False
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """The nanoseconds that a step has to undercut to be planned; None for no limit."""
        return None if self.price is None else round((1 - SAME_TIME) * self.price)

    def could_be_faster(self, request: Request) -> bool:
        """Whether a step might be faster than the fastest one that fits.

        Its least time is that of strategies that keep all tensors on devices with unlimited memory.
        To keep fewer tensors takes no less time. If these strategies were not searched, the step
        counts as slower, since steps with fewer microbatches are.
        """
        if self.limit is None:
            return True
        least = self.unlimited.get((request.rewrites, request.microbatches))
        return least is not None and least < self.limit

    def searched(self, request: Request, points: Points) -> None:
        """Store the points of a step whose strategies keep all tensors."""
        self.unlimited[request.rewrites, request.microbatches] = points[-1][1]

    def ended_early(self, space: str) -> None:
        """Store that time has ended the search of a space before anything was found."""
        self.skipped[space] = self.ENDED

    def has_time(self, space: str, *, until_one_fits: bool = False) -> bool:
        """Whether there is time to search a space. If there is none, the reason is stored.

        Args:
            space: its name.
            until_one_fits: whether its search goes on after the time while nothing is known to fit,
                unless a user has interrupted it. A plan that takes longer to find is worth more
                than none.
        """
        if seconds_left() or (until_one_fits and not self.fits and not is_stopped_by_user()):
            return True
        self.skipped[space] = NO_TIME
        return False
