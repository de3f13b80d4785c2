"""The frontier of a market as JSON values, from which any point is planned without a search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensoropt.errors import InfeasibleError, OptionError, PlanError
from tensoropt.json_files import digest_of, schema_error
from tensoropt.plan.amounts import bytes_of
from tensoropt.plan.plan import Plan
from tensoropt.planner.offers.kept_offers import kept_offer, offer_of
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.request import Request
from tensoropt.planner.searches.union import UnionPoint

__all__ = ["OF_THE_MARKET", "KeptFrontier"]

_SCHEMA = 1
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


@dataclass(frozen=True, slots=True, eq=False)
class KeptFrontier:
    """The points of a market's frontier.

    Attributes:
        values: the frontier as plain JSON values.
    """

    values: dict[str, Any]

    @classmethod
    def of(cls, plan: Plan, offers: Sequence[Offer], points: Sequence[UnionPoint]) -> KeptFrontier:
        """Return the frontier of a market.

        Args:
            plan: a plan of the market.
            offers: all offers of the market.
            points: the points of the frontier, in the order of ``plan.frontier``.
        """
        numbers: dict[int, list[int]] = {}
        for point in points:
            numbers.setdefault(point.frontier, []).append(point.number)
        places = {offer: place for place, offer in enumerate(numbers)}
        kept = {
            "schema": _SCHEMA,
            "devices": plan.devices,
            "points": [
                [places[point.frontier], numbers[point.frontier].index(point.number)]
                for point in points
            ],
            "offers": [kept_offer(offers[offer], points) for offer, points in numbers.items()],
            **{name: getattr(plan, name) for name in OF_THE_MARKET},
        }
        plain: dict[str, Any] = json.loads(json.dumps(kept))
        return cls({**plain, "digest": digest_of(plain)})

    @classmethod
    def from_json(cls, values: object) -> KeptFrontier:
        """Return the frontier that ``values`` describe.

        Raises:
            PlanError: if the values break the schema, or were changed.
        """
        error = schema_error(values, "tensoropt.planner.offers", "kept_frontier.schema.json")
        if error is not None:
            place = "/".join(map(str, error.path)) or "the whole"
            raise PlanError(
                f"a kept frontier follows its schema. Got at {place}: {error.message}; search it "
                "again."
            )
        assert isinstance(values, dict)
        if values["digest"] != digest_of(values):
            raise PlanError(
                "a kept frontier is as it was found. Got one that was changed afterwards; search "
                "it again."
            )
        return cls(values)

    def __len__(self) -> int:
        return len(self.values["points"])

    def plan_of(self, request: Request, option: str, number: int) -> Plan:
        """Return the plan of a point.

        Args:
            request: the request for which the frontier was searched.
            option: the option for which it was searched.
            number: the number of the point in ``Plan.frontier``.

        Raises:
            OptionError: if the frontier has no point with this number.
            InfeasibleError: if the point does not fit the memory limit.
            PlanError: if the frontier is that of another step.
            GraphError: if the step cannot be executed by the point's stages.
        """
        if not 0 <= number < len(self):
            raise OptionError(
                f"point is the number of one of the {len(self)} points of the frontier, from 0 to "
                f"{len(self) - 1}. Got point={number}; `tensoropt show` lists them for a plan."
            )
        request = replace(request, devices=self.values["devices"])
        frontier = [(memory, time) for memory, time in self.values["frontier"]]
        usable = request.usable_bytes(request.devices)
        if frontier[number][0] > usable:
            raise _does_not_fit(number, f"{bytes_of(frontier[number][0])} a device", usable)
        place, within = self.values["points"][number]
        members = zip(frontier, self.values["points"], strict=True)
        points = [point for point, (offer, _) in members if offer == place]
        offer = offer_of(request, self.values["offers"][place], points)
        plan = offer.plan_of(within, option)
        limit = request.limit_bytes(request.devices)
        if plan.peak_bytes is not None and plan.peak_bytes > limit:
            raise _does_not_fit(number, f"a peak of {bytes_of(plan.peak_bytes)}", limit)
        fields = {name: _frozen(self.values[name]) for name in OF_THE_MARKET}
        return replace(plan, **fields)


def _does_not_fit(number: int, amount: str, limit: int) -> InfeasibleError:
    return InfeasibleError(
        f"a chosen point fits the memory of a device, {bytes_of(limit)}. Got point "
        f"{number} with {amount}; choose a point with less memory, or raise memory_limit_bytes."
    )


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
