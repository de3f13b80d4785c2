"""The frontier of a market as a file. Any of its points is planned without a new search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Annotated, Any

from annotated_types import Ge, Len

from tensoropt.converters import Natural, Number, Positive, Text
from tensoropt.errors import InfeasibleError
from tensoropt.plan.amounts import bytes_of
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak, memory_and_time
from tensoropt.planner.offers.kept_offers import KeptOffer, kept_offer, offer_of
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.points import bytes_within, number_of
from tensoropt.planner.request import Request
from tensoropt.planner.searches.union import UnionPoint
from tensoropt.signed_files import FileKind

__all__ = ["OF_THE_MARKET", "KeptFrontier"]

_FILES = FileKind(5, "kept frontiers", "Remove the file: the frontier is then searched again.")
OF_THE_MARKET = (
    "frontier",
    "frontier_ways",
    "frontier_peaks",
    "exact",
    "within",
    "fewer_devices",
    "looked_at",
)
"""The fields of `Plan` that all plans of a market share."""
_MOST_TRIED = 4
"""The most points that are planned for one within an amount of memory."""

_Pairs = tuple[tuple[Natural, Natural], ...]


@dataclass(frozen=True, slots=True)
class KeptFrontier:
    """The points of a market's frontier.

    Attributes:
        devices: number of devices of its plans.
        points: for each point the number of its offer, and its number among that offer's points.
        offers: the offers that have points.
        frontier, frontier_ways, frontier_peaks, exact, within, fewer_devices, looked_at: see
            `Plan`.
    """

    devices: Positive
    points: Annotated[_Pairs, Len(1)]
    offers: Annotated[tuple[KeptOffer, ...], Len(1)]
    frontier: Annotated[_Pairs, Len(1)]
    frontier_ways: tuple[Text, ...]
    frontier_peaks: tuple[PointPeak | None, ...]
    exact: bool
    within: Annotated[Number, Ge(0)] | None
    fewer_devices: tuple[tuple[Natural, Natural | None], ...]
    looked_at: str

    @classmethod
    def of(cls, plan: Plan, offers: Sequence[Offer], points: Sequence[UnionPoint]) -> KeptFrontier:
        """Return the frontier of a market.

        Args:
            plan: a plan of the market.
            offers: all offers of the market.
            points: the points of the frontier, in the order of ``plan.frontier``.
        """
        numbers: dict[int, list[int]] = {}
        for point in sorted(points, key=attrgetter("number")):
            numbers.setdefault(point.frontier, []).append(point.number)
        places = {offer: place for place, offer in enumerate(numbers)}
        return cls(
            plan.devices,
            tuple(
                (places[point.frontier], numbers[point.frontier].index(point.number))
                for point in points
            ),
            tuple(kept_offer(offers[offer], kept) for offer, kept in numbers.items()),
            *(getattr(plan, name) for name in OF_THE_MARKET),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the frontier as JSON values, with their digest."""
        return _FILES.signed(self)

    @classmethod
    def from_json(cls, values: object, origin: str = "a frontier") -> KeptFrontier:
        """Return the frontier of JSON values: the inverse of `to_json`.

        Raises:
            PlanError: if the values break the schema, or were changed.
        """
        return _FILES.read(cls, values, origin)

    def __len__(self) -> int:
        return len(self.points)

    def plan_of(self, request: Request, option: str, point: int | str) -> Plan:
        """Return the plan of a point, given as for `number_of`; see `plans_of`.

        Most peaks of the frontier are interpolated. If a point is given as an amount of memory, and
        the peak of its plan is higher, slower points are tried, each by the error of the last.

        Raises:
            InfeasibleError: also if no tried point has a peak within the amount.
        """
        points = memory_and_time(self.frontier, self.frontier_peaks)
        number, within = number_of(point, points), bytes_within(point)
        if within is None:
            return self.plans_of(request, option, [number])[number]
        usable = min(within, request.limit_bytes(self.devices))
        planned = self._planner(request, option)
        peaks: dict[int, int] = {}
        while number not in peaks and len(peaks) < _MOST_TRIED:
            plan = planned(number)
            if plan.peak_bytes is None or plan.peak_bytes <= usable:
                return plan
            peaks[number] = plan.peak_bytes
            error = plan.peak_bytes / points[number][0]
            fitting = [n for n in range(number) if error * points[n][0] <= usable]
            number = fitting[-1] if fitting else number // 2
        raise InfeasibleError(
            f"the plan of a point within an amount of memory has a peak within it. Got "
            f"point={point!r}, and the least peak of the tried plans is "
            f"{bytes_of(min(peaks.values()))}; give more, or a point's number."
        )

    def plans_of(self, request: Request, option: str, numbers: Sequence[int]) -> dict[int, Plan]:
        """Return the plans of points, by number.

        Args:
            request: the request for which the frontier was searched.
            option: the option for which it was searched.
            numbers: the numbers of the points in ``Plan.frontier``.

        Raises:
            OptionError: if the frontier has no point with such a number.
            InfeasibleError: if a point does not fit the memory limit.
            PlanError: if the frontier is that of another step.
            GraphError: if the step cannot be executed by a point's stages.
        """
        planned, limit = self._planner(request, option), request.limit_bytes(self.devices)
        plans = {}
        for number in numbers:
            plan = plans[number] = planned(number)
            if plan.peak_bytes is not None and plan.peak_bytes > limit:
                raise _does_not_fit(number, f"a peak of {bytes_of(plan.peak_bytes)}", limit)
        return plans

    def _planner(self, request: Request, option: str) -> Callable[[int], Plan]:
        """Return a function that plans a point, by its number; the sum of its memory has to fit."""
        request = replace(request, devices=self.devices)
        usable = request.usable_bytes(request.devices)
        offer = cache(partial(self._offer, request))
        shared = {name: getattr(self, name) for name in OF_THE_MARKET}

        def planned(number: int) -> Plan:
            self._check(number, usable)
            of_offer, in_offer = self.points[number]
            plan = offer(of_offer).plan_of(in_offer, option)
            return replace(plan, point=number, **shared)

        return planned

    def _offer(self, request: Request, number: int) -> Offer:
        """Return the offer with a number, with the kept points alone."""
        members = zip(self.points, self.frontier, strict=True)
        kept = {own: point for (offer, own), point in members if offer == number}
        points = [kept[own] for own in sorted(kept)]
        return offer_of(request, self.offers[number], points)

    def _check(self, number: int, usable: int) -> None:
        """Check that there is a point with this number, and that its memory fits."""
        number_of(number, self.frontier)
        memory, _ = self.frontier[number]
        if memory > usable:
            raise _does_not_fit(number, f"{bytes_of(memory)} a device", usable)


def _does_not_fit(number: int, amount: str, limit: int) -> InfeasibleError:
    return InfeasibleError(
        f"a chosen point fits the memory of a device, {bytes_of(limit)}. Got point "
        f"{number} with {amount}; choose a point with less memory, or raise memory_limit_bytes."
    )
