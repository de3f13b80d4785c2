"""The market: every space is asked for offers of a step, and one frontier has them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.planner.offers.kept_frontier import KeptFrontier
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.optional_space import looked_at
from tensoropt.planner.request import Request
from tensoropt.planner.searches.union import UnionPoint, union
from tensoropt.planner.spaces import branches, keeping_less, microbatches, rewritten, stages
from tensoropt.planner.spaces.known import Known
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["SPACES", "Market"]

Space = Callable[[Request, Known], Iterator[Offer]]
SPACES: Mapping[str, Space] = {
    microbatches.NAME: microbatches.offers,
    keeping_less.NAME: keeping_less.offers,
    branches.NAME: branches.offers,
    stages.NAME: stages.offers,
}
"""What a step can be besides the batch at once, in the order in which they are asked. A new space
is a module of `tensoropt.planner.spaces` and a line here."""

_UNDERCUTTING = (keeping_less.NAME, branches.NAME, stages.NAME)
"""Spaces whose steps are searched only as far as they can be faster than what is known to fit."""
_LONGEST_REASON = 90


class Market:
    """All offers of a step on a number of devices.

    Args:
        request: the step.

    Attributes:
        request: the step.
        offers: the batch at once first, unless a number of stages is demanded.
        known: what spaces tell of themselves.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.offers: list[Offer] = []
        self.known = Known()
        if request.pipeline is not None and request.pipeline.stages is not None:
            self._ask_for_demanded_stages()
            return
        whole = Strategies.of(request)
        self.offers.append(whole)
        self.known.fits = bool(whole.fitting)
        self._know(whole)
        with Watch(seconds=self._seconds()):
            for step in self._steps(whole):
                for name, space in SPACES.items():
                    if name in _UNDERCUTTING:
                        looked_at(name, self._know_fastest, None, self.known.notes)
                    look = partial(self._add, partial(space, step, self.known))
                    looked_at(name, look, None, self.known.notes)

    def frontier(self) -> list[UnionPoint]:
        """The points of all offers that no other beats."""
        return union(offer.points for offer in self.offers)

    @property
    def looked_at(self) -> str:
        """What was searched, and what was not and why, in one line."""
        ways: dict[str, int] = {}
        for offer in self.offers:
            name = f"rewritten, {offer.kind}" if offer.request.rewrites else offer.kind
            name += " with less kept" * offer.request.keeps_less
            ways[name] = ways.get(name, 0) + 1
        found = [name if count == 1 else f"{count} x {name}" for name, count in ways.items()]
        left = [f"{name} ({_shortened(why)})" for name, why in self.known.skipped.items()]
        return "searched: " + ", ".join(found) + ("; not: " + ", ".join(left) if left else "")

    def kept(self, plan: Plan) -> KeptFrontier:
        """The frontier, so that another process plans a point of it.

        Args:
            plan: of this market.
        """
        return KeptFrontier.of(plan, self.offers, self.frontier())

    @property
    def least_bytes(self) -> int:
        """What the least strategy takes; where it fits by that and its peak does not, the peak."""
        least = self.frontier()[0].memory
        tried = [
            each.choice for each in self.offers if isinstance(each, Strategies) if each.fitting
        ]
        peaks = [choice.peak.bytes for choice in tried if choice.excess_bytes]
        return min(peaks, default=least)

    def _know(self, whole: Strategies) -> None:
        """What the batch at once tells other spaces."""
        self.known.searched(whole.request, whole.points)
        if whole.fitting and not whole.choice.excess_bytes:
            self._note(whole)

    def _know_fastest(self) -> None:
        """The fastest strategy whose peak fits, of all offers without stages.

        Offers that need long dry runs are left out: a plan needs these only where nothing else is
        faster.
        """
        known = self.known
        for offer in sorted(
            (each for each in self.offers if isinstance(each, Strategies) and each.fitting),
            key=lambda each: each.price or 0,
        ):
            if not offer.is_quick_to_emit or not seconds_left():
                continue
            if known.price is not None and (offer.price or 0) >= known.price:
                return
            if offer.choice.excess_bytes:
                continue
            if known.price is None or offer.allowed_price < known.price:
                self._note(offer)

    def _note(self, fastest: Strategies) -> None:
        """The price of what is planned of an offer, and the time of the point in place of which it
        is: times of points are compared with each other."""
        self.known.price = fastest.allowed_price
        self.known.time = fastest.points[fastest.choice.point][1]

    def _steps(self, whole: Strategies) -> Iterator[Request]:
        """The steps for which spaces are asked: the script's, and the fastest rewritten one, where
        that is faster or nothing fits."""
        yield self.request
        known = self.known
        looked_at(rewritten.NAME, self._know_fastest, None, known.notes)
        look = partial(self._add, partial(rewritten.offers, whole, known))
        before = len(self.offers)
        looked_at(rewritten.NAME, look, None, known.notes)
        most = whole.points[-1][1]
        if known.price is not None:
            most = round((1 - SAME_TIME) * most)
        found = [each for each in self.offers[before:] if each.points[-1][1] <= most]
        if found:
            fastest = min(found, key=lambda each: each.points[-1][1])
            known.searched(fastest.request, fastest.points)
            yield fastest.request

    def _add(self, offers: Callable[[], Iterable[Offer]]) -> None:
        for offer in offers():
            self.offers.append(offer)
            self.known.fits |= bool(offer.fitting)

    def _ask_for_demanded_stages(self) -> None:
        self.offers += stages.demanded(self.request)
        look = partial(self._add, partial(rewritten.in_stages, self.request, self.known))
        looked_at(rewritten.NAME, look, None, self.known.notes)

    def _seconds(self) -> float | None:
        """For how long spaces are looked at unasked: for no longer than they can win."""
        request, price = self.request, self.known.price
        asked = request.pipeline is not None and request.pipeline.is_asked
        if price is None or asked or request.rewrite or request.steps is None:
            return request.search_seconds
        worth = request.worth_seconds(price, stages.MOST_GAIN)
        return min(worth, request.search_seconds or worth)


def _shortened(reason: str) -> str:
    """The start of a reason; of an error its rule is that."""
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
