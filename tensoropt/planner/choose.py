"""The options of ``find_strategy``, each a few lines over the market (TensorOpt, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tensoropt.errors import GraphError, InfeasibleError, LayoutError
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.plan import Plan
from tensoropt.planner.infeasible import infeasible
from tensoropt.planner.market import Market
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.plans.fallbacks import left_out
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.plans.stage_peaks import failed_in_dry_run
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes, problem_of
from tensoropt.planner.searches.shared import shared_searches
from tensoropt.planner.spaces.stages import least_held
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.solvers import solver

__all__ = ["Candidates", "choose", "chosen", "profiling"]


def choose(request: Request, option: str) -> Plan:
    """The plan of an option.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice;
            "mini_cost", on the number of the budget whose steps cost least.

    Raises:
        InfeasibleError: nothing fits; names the least memory and the fewest devices that would. No
            step meets the deadline of "mini_cost"; names the fastest.
        OptionError: more stages are demanded than there are devices.
        GraphError: the step cannot be cut into the microbatches or stages that are demanded.
    """
    return chosen(request, option)[1]


def profiling(
    request: Request, parallelism: Sequence[int], limits: Sequence[int | None] = (None,)
) -> ParallelismProfile:
    """What "mini_time" plans on each number of devices, under each memory limit.

    Spaces are asked for each limit, as their offers depend on what fits. The limits share the
    searches that do not depend on a limit.

    Args:
        request: what a strategy is looked for.
        parallelism: numbers of devices.
        limits: bytes of one device; None for the request's limit.
    """
    points: list[ProfilePoint] = []
    for devices in parallelism:
        own = replace(request, devices=devices)
        with shared_searches():
            for limit in limits:
                limited = own if limit is None else replace(own, memory_limit_bytes=limit)
                market = Market(limited)
                points.append(_point_of(market, _first_that_works(market, "mini_time")[0]))
    return ParallelismProfile(tuple(points))


def _point_of(market: Market, plan: Plan | None) -> ProfilePoint:
    """The plan of a market, None where nothing fits, as a row of a profile."""
    request, devices = market.request, market.request.devices
    return ProfilePoint(
        devices,
        None if plan is None else plan.predicted_step_seconds,
        market.least_bytes if plan is None else plan.memory_bytes,
        request.memory_limit_bytes,
        request.examples,
        request.device_hour_cost(devices),
        request.profile_at(devices) is not None,
    )


class Candidates:
    """What to measure before a plan is adopted: the chosen plan, and all other points that fit, by
    the search's sums of their times.

    Args:
        request: what a strategy is looked for.
        option: of `choose`; all candidates use the devices of the chosen plan.

    Raises:
        InfeasibleError: no strategy fits the memory limit, or meets the deadline.
    """

    def __init__(self, request: Request, option: str) -> None:
        self._market, self._chosen = chosen(request, option)
        self._option = option

    def __len__(self) -> int:
        """How many fit the memory limit."""
        return len(self._points)

    def __getitem__(self, number: int) -> Plan:
        """The plan after ``number`` others."""
        offer, point = self._points[number]
        plan = offer.plan_of(point, self._option)
        same = not number and plan.runs_as(self._chosen)
        return self._chosen if same else _with_market(plan, self._market)

    def data_parallel(self) -> Plan:
        """Data parallelism on the same devices, whether or not it fits the memory limit."""
        request = self._market.request
        own = replace(request, algorithm="data_parallel", pipeline=None)
        problem = problem_of(own, own.devices)
        frontier = solver(own.algorithm)(problem).found
        return plan_for(own, problem, frontier, frontier[0], self._option)

    @cached_property
    def _points(self) -> list[tuple[Offer, int]]:
        """Points of the market's frontier that fit, the fastest first."""
        usable = self._market.request.usable_bytes(self._market.request.devices)
        fitting = [point for point in self._market.frontier() if point.memory <= usable]
        return [(self._market.offers[each.frontier], each.number) for each in reversed(fitting)]


def chosen(request: Request, option: str) -> tuple[Market, Plan]:
    """The market of the devices that are used, and its plan; see `choose`."""
    if option == "mini_cost":
        return _cheapest(request)
    if option == "mini_parallelism":
        for devices in range(_fewest(request), request.devices):
            own = replace(request, devices=devices)
            try:
                if _can_fit(own):
                    market = Market(own)
                    return market, _planned(market, option)
            except (InfeasibleError, LayoutError):  # the cluster may have no such number of devices
                continue
    market = Market(request)
    return market, _planned(market, option)


def _cheapest(request: Request) -> tuple[Market, Plan]:
    """The plan with the fewest device-seconds a step, among those that meet the deadline.

    One price of a device-hour holds for all plans, so it does not change their order. Where two
    cost the same, the faster one is chosen.

    Raises:
        InfeasibleError: nothing fits on any number of devices, or no plan meets the deadline.
    """
    limit = inf if (given := request.budget.max_step_seconds) is None else given
    points: list[ProfilePoint] = []
    in_time: list[tuple[Market, Plan]] = []
    for devices in request.budget.parallelism:
        market = Market(replace(request, devices=devices))
        plan, errors = _first_that_works(market, "mini_cost")
        points.append(_point_of(market, plan))
        if plan is not None and plan.predicted_step_seconds <= limit:
            in_time = sorted([*in_time, (market, plan)], key=_cost)[:1]
    if not in_time:
        if any(point.fits for point in points):
            raise _too_slow(points, limit)
        raise infeasible(market.request, market.offers, market.known, errors)
    ((market, plan),) = in_time
    note = "mini_cost chose among " + "; ".join(map(str, points))
    return market, replace(plan, notes=(*plan.notes, note))


def _cost(found: tuple[Market, Plan]) -> tuple[int, int]:
    """Nanoseconds of a step of all devices together, and of the step."""
    _, plan = found
    return plan.devices * plan.predicted_nanoseconds, plan.predicted_nanoseconds


def _too_slow(points: Sequence[ProfilePoint], limit: float) -> InfeasibleError:
    """The error for a deadline that no plan meets."""
    known = [(each.time_seconds, each.devices) for each in points]
    seconds, devices = min((time, count) for time, count in known if time is not None)
    return InfeasibleError(
        f"a step of 'mini_cost' takes at most {limit:g} s. Got {seconds:.4g} s for the fastest "
        f"plan, on {devices_of(devices)}. Allow a step more time, or start more devices."
    )


def _fewest(request: Request) -> int:
    """The least number of devices that can do."""
    stages = None if request.pipeline is None else request.pipeline.stages
    return stages or 1


def _can_fit(request: Request) -> bool:
    """Whether by bounds some strategy fits the memory of the request's devices."""
    usable = request.usable_bytes(request.devices)
    if request.pipeline is not None or request.accumulate:
        return least_held(request) <= usable
    if request.keep_less:
        request = replace(request, space=FRUGAL)
    return least_bytes(request, request.devices) <= usable


def _planned(market: Market, option: str) -> Plan:
    """The plan of a market.

    Raises:
        InfeasibleError: no offer fits.
        Exception: what making the plan of the only offer that fits has raised.
    """
    plan, errors = _first_that_works(market, option)
    if plan is None:
        raise infeasible(market.request, market.offers, market.known, errors)
    return plan


def _first_that_works(market: Market, option: str) -> tuple[Plan | None, list[Exception]]:
    """The plan of the simplest offer that fits, and is within 3 % of the fastest (`SAME_TIME`).

    An offer whose plan cannot be executed, or has too high a peak of memory, gives way to others.
    Its price may rise twice: once its peak is known, and once its plan is made.

    Returns:
        The plan, None where no offer fits, and what making the plans of other offers has raised.

    Raises:
        Exception: what making the plan of the only offer that fits has raised.
    """
    every = [_Priced(each, each.price) for each in market.offers if each.price is not None]
    reasons: list[str] = []
    errors: list[Exception] = []
    while every:
        close = (1 + SAME_TIME) * min(each.price for each in every)
        near = [each for each in every if each.price <= close]
        best = min(near, key=lambda each: (each.offer.complexity, each.price))
        if best.plan is not None:
            notes = [*best.plan.notes, *market.known.notes, *map(left_out, reasons)]
            found = replace(best.plan, notes=tuple(dict.fromkeys(notes)))
            return _with_market(found, market), errors
        every.remove(best)
        try:
            every.append(_priced_again(market, best, option))
        except Exception as error:
            errors.append(error)
            reasons.append(f"{best.offer.kind}: {first_line(error)}")
    if len(errors) == 1 and not isinstance(errors[0], InfeasibleError):
        raise errors[0]
    return None, errors


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """An offer, and what is known of its price.

    Attributes:
        price: nanoseconds of a step.
        is_allowed: whether the peak of memory fits.
        plan: if it is made.
    """

    offer: Offer
    price: int
    is_allowed: bool = False
    plan: Plan | None = None


def _priced_again(market: Market, known: _Priced, option: str) -> _Priced:
    """An offer with the price that its peak allows, or that of its plan.

    Raises:
        Exception: no peak fits, or no plan can be executed.
    """
    if not known.is_allowed:
        return replace(known, price=known.offer.allowed_price, is_allowed=True)
    plan = _executable(market, known.offer, option)
    return replace(known, price=plan.predicted_nanoseconds, plan=plan)


def _executable(market: Market, offer: Offer, option: str) -> Plan:
    """The plan of an offer.

    Raises:
        GraphError: the dry run of each stage that could be planned fails, and there are others.
    """
    plan = offer.plan(option)
    if failed_in_dry_run(market.request, plan) and len(market.offers) > 1:
        raise GraphError(plan.notes[-1])
    return plan


def _with_market(plan: Plan, market: Market) -> Plan:
    """A plan with the frontier of all offers, and the times on fewer devices."""
    offers, request = market.offers, market.request
    if not plan.fewer_devices:
        whole = offers[0]
        problem = whole.problem if isinstance(whole, Strategies) else None
        failures: list[str] = []
        times = fewer_devices(request, problem, failures)
        plan = replace(plan, fewer_devices=times, notes=(*plan.notes, *failures))
    points = market.frontier()
    frontier = tuple((point.memory, point.time) for point in points)
    kept = {memory for memory, _ in set(plan.frontier).intersection(frontier)}
    gaps = [each.frontier.within if isinstance(each, Strategies) else None for each in offers]
    return replace(
        plan,
        frontier=frontier,
        frontier_peaks=tuple(each for each in plan.frontier_peaks if each[0] in kept),
        looked_at=market.looked_at,
        frontier_ways=tuple(offers[each.frontier].way_of(each.number) for each in points),
        exact=all(isinstance(each, Strategies) and each.frontier.exact for each in offers),
        within=None if None in gaps else max(gap for gap in gaps if gap is not None),
    )
