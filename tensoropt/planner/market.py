"""The market: every space makes offers for a step, and one frontier combines all offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from operator import itemgetter

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak, memory_and_time
from tensoropt.planner.offers.kept_frontier import KeptFrontier
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.prices.dry_runs import LatePlans, dry_runs_in_time
from tensoropt.planner.prices.frontier_peaks import OPERATORS
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes, search_frontier
from tensoropt.planner.searches.union import UnionPoint, union
from tensoropt.planner.spaces import (
    branches,
    evenly_joined,
    in_proportion,
    keeping_less,
    microbatches,
    rewritten,
    stages,
)
from tensoropt.planner.spaces.findings import Findings
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["SPACES", "Market"]

Space = Callable[[Request, Findings], Iterator[Offer]]
SPACES: Mapping[str, Space] = {
    microbatches.NAME: microbatches.offers,
    stages.NAME: stages.offers,
    branches.NAME: branches.offers,
    keeping_less.NAME: keeping_less.offers,
}
"""The spaces besides the batch at once, in the order in which they are asked if the batch at once
fits. Keeping less is last, because no bound of a step's time ends its searches early. A new space
is a module of `tensoropt.planner.spaces` and a line here."""

_UNDERCUTTING = (stages.NAME, branches.NAME, keeping_less.NAME)
"""Spaces that search only for steps faster than the fastest one that is known to fit."""
_NONE_FITS = (
    "none of the batch at once fits the memory: it was searched to a gap of {gap:.0%} alone"
)
_SHARE_OF_WHOLE = 0.5
"""The share of the time for the batch at once if none of it fits. Other spaces get the rest."""
_FIRST_SHARE = 0.25
"""The share of the time for estimates of peaks that all offers share alike."""
_LONGEST_REASON = 90
"""The most characters of the reason for which a space was not searched."""


class Market:
    """All offers for a step on a number of devices.

    Attributes:
        request: the step.
        offers: all offers. The first is the batch at once, unless the script demands stages.
        findings: the best price so far, and the reports of the spaces.
        failures: notes on peaks that could not be estimated.
    """

    def __init__(self, request: Request) -> None:
        late = LatePlans()
        self.request = dry_runs_in_time(request, late)
        self.offers: list[Offer] = []
        self.findings = Findings()
        self.failures: list[str] = []
        if request.pipeline is not None and request.pipeline.stages is not None:
            self._ask_for_demanded_stages()
        else:
            self._ask()
        late.end_search()

    @cached_property
    def peaks(self) -> list[list[PointPeak | None]]:
        """The predicted peaks of each offer's points; asked for when all offers are made.

        All offers share the time for estimates: a part of it tells which offers have points of the
        frontier, and these share the rest. A failure adds to `failures`.
        """
        share = int(_FIRST_SHARE * OPERATORS) // len(self.offers)
        peaks = [self._peaks_of(offer, share) for offer in self.offers]
        points = Counter(point.frontier for point in self._united(peaks))
        for place, count in points.items():
            rest = int((1 - _FIRST_SHARE) * OPERATORS) * count // points.total()
            peaks[place] = self._peaks_of(self.offers[place], share + rest)
        return peaks

    def _peaks_of(self, offer: Offer, operators: int) -> list[PointPeak | None]:
        """Return the peaks of an offer; none are known if they fail."""
        look = partial(offer.peaks, operators)
        unknown: list[PointPeak | None] = [None] * len(offer.points)
        return attempt("peaks along the frontier", look, unknown, self.failures)

    def frontier(self, usable_bytes: float = inf) -> list[UnionPoint]:
        """Return the points of all offers that no other point beats in both peak and step.

        Steps are those that are executed. A point whose peak is unknown counts by its sum.

        Args:
            usable_bytes: the most bytes that the sum of a point may take.
        """
        return self._united(self.peaks, usable_bytes)

    def _united(
        self, of_offers: Sequence[Sequence[PointPeak | None]], usable_bytes: float = inf
    ) -> list[UnionPoint]:
        """Return the result of `frontier` with the given peaks of each offer."""
        return union(
            UnionPoint(memory, time, place, number)
            for place, (offer, peaks) in enumerate(zip(self.offers, of_offers, strict=True))
            for number, (memory, time) in enumerate(memory_and_time(offer.points, peaks))
            if offer.points[number][0] <= usable_bytes
        )

    def with_frontier(self, plan: Plan, offer: Offer) -> Plan:
        """Return a plan of one of the offers with the frontier of all offers."""
        points, offers = self.frontier(), self.offers
        own = offers.index(offer), offer.number_of(plan)
        places = [(point.frontier, point.number) for point in points]
        peaks = tuple(self.peaks[point.frontier][point.number] for point in points)
        gaps = [o.searched.within if isinstance(o, Strategies) else None for o in offers]
        return replace(
            plan,
            frontier=tuple(offers[point.frontier].points[point.number] for point in points),
            frontier_peaks=peaks if any(peaks) else (),
            point=places.index(own) if own in places else None,
            looked_at=self.looked_at,
            frontier_ways=tuple(offers[point.frontier].way_of(point.number) for point in points),
            exact=all(isinstance(offer, Strategies) and offer.searched.exact for offer in offers),
            within=None if None in gaps else max(gap for gap in gaps if gap is not None),
            notes=(*plan.notes, *dict.fromkeys(self.failures)),
        )

    @property
    def looked_at(self) -> str:
        """A line that names the searched spaces, and those not searched with the reasons."""
        counts: dict[str, int] = {}
        for offer in self.offers:
            name = f"rewritten, {offer.kind}" if offer.request.rewrites else offer.kind
            name += " with less kept" * offer.request.keeps_less
            name += " in proportion" * (offer.request.shares is not None)
            name += " with joined batches cut evenly" * (offer.request.units == ())
            counts[name] = counts.get(name, 0) + 1
        searched = [name if count == 1 else f"{count} x {name}" for name, count in counts.items()]
        skipped = [f"{name} ({_shortened(why)})" for name, why in self.findings.skipped.items()]
        not_searched = "; not: " + ", ".join(skipped) if skipped else ""
        return "searched: " + ", ".join(searched) + not_searched

    def kept(self, plan: Plan) -> KeptFrontier:
        """Return the frontier in a form from which another process can plan any point.

        Args:
            plan: a plan of this market.
        """
        return KeptFrontier.of(plan, self.offers, self.frontier())

    @property
    def least_bytes(self) -> int:
        """The least memory of a strategy, or its peak if the peak is what does not fit."""
        least = min(memory for offer in self.offers for memory, _ in offer.points)
        choices = [
            offer.choice for offer in self.offers if isinstance(offer, Strategies) if offer.fitting
        ]
        peaks = [choice.peak.bytes for choice in choices if choice.excess_bytes]
        return min(peaks, default=least)

    def _ask(self) -> None:
        """Ask all spaces for offers."""
        whole = self._whole()
        self.offers.append(whole)
        self.findings.fits, self.findings.known = bool(whole.fitting), whole.known
        self.findings.searched(whole.request, whole.points)
        if whole.fitting and not whole.choice.excess_bytes:
            self.findings.price = whole.allowed_price
        with Watch(seconds=self._seconds()):
            for step in self._steps(whole):
                self._ask_in_order(step)

    def _ask_in_order(self, step: Request) -> None:
        """Ask the spaces for offers for a step.

        While nothing is known to fit, and microbatches may, their search would take most of the
        time. Then stages are asked first, with half of it: bounds order their search.
        """
        findings, notes = self.findings, self.findings.notes
        are_undecided = findings.price is None and step.pipeline is not None
        may_fit = partial(microbatches.may_fit, step, findings)
        stages_first = are_undecided and attempt(microbatches.NAME, may_fit, False, notes)
        for name in sorted(SPACES, key=lambda name: stages_first and name != stages.NAME):
            if name in _UNDERCUTTING:
                attempt(name, self._know_fastest, None, notes)
            look = partial(self._add, partial(SPACES[name], step, findings))
            is_first = stages_first and name == stages.NAME
            with Watch(seconds=seconds_left() / 2 if is_first else None):
                attempt(name, look, None, notes)

    def _whole(self) -> Strategies:
        """Return the batch at once, with a request from which spaces make theirs.

        The searches of spaces end at a wider gap, which leaves time to search more of them. If a
        bound proves that no strategy of the batch at once fits, and another space may, the batch at
        once is searched to `SearchLimits.coarse_gap`, with a share of the time: its strategies only
        begin other searches. Requests with other limits may use more of it.
        """
        request, devices, seconds = self.request, self.request.devices, inf
        optional = replace(request, closes=False)
        has_others = request.accumulate or request.keep_less or request.pipeline is not None
        may_end_early = has_others and request.results is None
        if may_end_early and least_bytes(request, devices) > request.usable_bytes(devices):
            gap = max(request.epsilon, DEFAULT_LIMITS.coarse_gap)
            request = replace(optional, epsilon=gap)
            request.builders.update(self.request.builders)
            self.findings.notes.append(_NONE_FITS.format(gap=gap))
            seconds = _SHARE_OF_WHOLE * (request.search_seconds or inf)
        with Watch(seconds=seconds):
            return Strategies(optional, *search_frontier(request, devices))

    def _know_fastest(self) -> None:
        """Tell the spaces the price of the fastest strategy whose peak fits.

        Offers that need long dry runs are left out. A plan needs such a dry run only if nothing
        else is faster.
        """
        findings = self.findings
        priced = [(offer.price, offer) for offer in self.offers if offer.price is not None]
        for price, offer in sorted(priced, key=itemgetter(0)):
            if findings.price is not None and price >= findings.price:
                return
            known = offer.known_price if seconds_left() else None
            if known is not None and (findings.price is None or known < findings.price):
                findings.price = known

    def _steps(self, whole: Strategies) -> Iterator[Request]:
        """Yield the steps for which spaces make offers.

        They are the script's step, the step with joined batches cut evenly, the step in proportion
        to the devices' speeds, and the fastest rewritten one, if they are faster than all that
        fits, or if nothing fits.
        """
        yield whole.request
        for space in (evenly_joined, in_proportion):
            cuts = partial(space.offers, whole.request, self.findings)
            for faster in self._faster(space.NAME, cuts, whole):
                whole = faster
                yield whole.request
        substituted = partial(rewritten.offers, whole, self.findings)
        for faster in self._faster(rewritten.NAME, substituted, whole):
            yield faster.request

    def _faster(
        self, name: str, offers: Callable[[], Iterable[Offer]], whole: Strategies
    ) -> Iterator[Strategies]:
        """Add a space's offers, and yield the fastest if it is clearly faster than ``whole``."""
        findings = self.findings
        attempt(name, self._know_fastest, None, findings.notes)
        before = len(self.offers)
        attempt(name, partial(self._add, offers), None, findings.notes)
        most = whole.points[-1][1]
        if findings.price is not None:
            most = round((1 - SAME_TIME) * most)
        faster = [
            offer
            for offer in self.offers[before:]
            if isinstance(offer, Strategies) and offer.points[-1][1] <= most
        ]
        if faster:
            fastest = min(faster, key=lambda offer: offer.points[-1][1])
            findings.searched(fastest.request, fastest.points)
            findings.known = fastest.known
            yield fastest

    def _add(self, offers: Callable[[], Iterable[Offer]]) -> None:
        for offer in offers():
            self.offers.append(offer)
            self.findings.fits |= bool(offer.fitting)

    def _ask_for_demanded_stages(self) -> None:
        self.offers += stages.demanded(self.request)
        look = partial(self._add, partial(rewritten.in_stages, self.request, self.findings))
        attempt(rewritten.NAME, look, None, self.findings.notes)

    def _seconds(self) -> float | None:
        """Return the limit of the time in which spaces are searched.

        If the script asks for none of them, it is at most the time that they can win for the job.
        """
        request, price = self.request, self.findings.price
        asked = request.pipeline is not None and request.pipeline.is_asked
        if price is None or asked or request.rewrite or request.steps is None:
            return request.search_seconds
        worth = request.worth_seconds(price, stages.MOST_GAIN)
        return min(worth, request.search_seconds or worth)


def _shortened(reason: str) -> str:
    """Return the start of a reason. If the reason is an error, its start says the broken rule."""
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
