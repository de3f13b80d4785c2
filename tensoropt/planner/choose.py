"""The options of ``find_strategy``; each chooses from a market (TensorOpt, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod

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
from tensoropt.planner.plans.details import other_strategies
from tensoropt.planner.plans.fallbacks import left_out
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.plans.stage_peaks import failed_in_dry_run
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes, problem_of
from tensoropt.planner.searches.pipeline_bound import PipelineBound
from tensoropt.planner.spaces.stages import can_hold_variables
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.solvers import solver
from tensoropt.search.watch import Watch

__all__ = ["Candidates", "choose", "chosen", "profiling"]

_ALL_SECONDS = 1.5
"""The seconds of planning on a number of devices, as a multiple of the request's. The search of the
batch at once may take the request's seconds, and then half as many are left for all others."""


def choose(request: Request, option: str) -> Plan:
    """Return the plan of an option.

    Args:
        request: the step and its devices.
        option: "mini_time" plans for all devices; "mini_parallelism" for the fewest that suffice;
            "mini_cost" for the number, among those of the budget, whose steps cost least.

    Raises:
        InfeasibleError: no strategy fits the memory limit; the error names the least memory, and
            the fewest devices on which one would fit. Or no plan meets the deadline of "mini_cost";
            the error names the fastest.
        OptionError: the script demands more stages than there are devices.
        GraphError: the step cannot be cut into the microbatches or stages that are demanded.
    """
    return chosen(request, option)[1]


def profiling(
    request: Request, parallelism: Sequence[int], limits: Sequence[int | None] = (None,)
) -> ParallelismProfile:
    """Return what "mini_time" plans on each number of devices, under each memory limit.

    There is a market for each limit, since spaces make different offers under different limits. The
    markets share the searches that do not depend on the limit.

    Args:
        request: the step.
        parallelism: the numbers of devices, ascending.
        limits: bytes of one device; None for the request's limit.
    """
    points: list[ProfilePoint] = []
    for devices in parallelism:
        on_devices, ran_out = replace(request, devices=devices, results={}), False
        for limit in limits:
            limited = on_devices
            if limit is not None:
                limited = replace(on_devices, memory_limit_bytes=limit)
            with _watch(limited) as watch:
                market = Market(limited)
                plan, _ = _first_that_works(market, "mini_time")
            ran_out |= watch.ran_out  # limits share searches
            points.append(_point_of(market, plan, ran_out))
    return ParallelismProfile(tuple(points))


def _point_of(market: Market, plan: Plan | None, ran_out: bool) -> ProfilePoint:
    """Return the plan of a market as a row of a profile."""
    request, devices = market.request, market.request.devices
    point = ProfilePoint(
        devices,
        None if plan is None else plan.predicted_step_seconds,
        market.least_bytes if plan is None else plan.memory_bytes,
        request.memory_limit_bytes,
        request.examples,
        request.device_hour_cost(devices),
        request.profile_at(devices) is not None,
        least_seconds=PipelineBound(request).least_nanoseconds / 1e9 if ran_out else None,
    )
    if plan is None:
        return point
    once = max((stage.once_nanoseconds for stage in plan.stages), default=0)
    return replace(
        point,
        way=f"{plan.way}{_stored_share(request, plan)}",
        network_seconds=plan.predicted_network_seconds + once / 1e9,
        waiting_seconds=plan.bubble * plan.predicted_step_seconds,
    )


def _stored_share(request: Request, plan: Plan) -> str:
    """Return the stored share of the variables on a device; empty if it is all, or with stages."""
    if plan.stages:
        return ""
    here = everywhere = 0
    for operator in plan.operators:
        if request.graph[operator.name].is_variable:
            axes = [plan.mesh_axes[axis] for split in operator.splits for axis in split]
            here += operator.memory_bytes
            everywhere += operator.memory_bytes * prod(axes)
    parts = round(everywhere / max(here, 1))
    return f", 1/{parts:,} of variables on a device" if parts > 1 else ""


class Candidates:
    """The plans that may be measured before one is adopted.

    The first is the chosen plan. The others are the points that fit, the fastest first.

    Args:
        request: the step and its devices.
        option: the option of `choose`. All candidates use the devices of the chosen plan.

    Raises:
        InfeasibleError: no strategy fits the memory limit, or meets the deadline.
    """

    def __init__(self, request: Request, option: str) -> None:
        self._market, self._chosen = chosen(request, option)
        self._option = option

    def __len__(self) -> int:
        """Return the number of points that fit the memory limit."""
        return len(self._points)

    def __getitem__(self, number: int) -> Plan:
        """Return the plan of the point with this number; 0 is the fastest."""
        offer, point = self._points[number]
        plan = offer.plan_of(point, self._option)
        is_chosen = not number and plan.runs_as(self._chosen)
        return self._chosen if is_chosen else _with_market(plan, self._market, offer)

    def data_parallel(self) -> Plan:
        """Return data parallelism on the same devices, even if it exceeds the memory limit."""
        market_request = self._market.request
        request = replace(market_request, algorithm="data_parallel", pipeline=None)
        problem = problem_of(request, request.devices)
        frontier = solver(request.algorithm)(problem).found
        return plan_for(request, problem, frontier, frontier.strategies[0], self._option)

    @cached_property
    def _points(self) -> list[tuple[Offer, int]]:
        """The points of the market's frontier that fit, the fastest first."""
        usable = self._market.request.usable_bytes(self._market.request.devices)
        fitting = self._market.frontier(usable)
        return [(self._market.offers[point.frontier], point.number) for point in reversed(fitting)]


def chosen(request: Request, option: str) -> tuple[Market, Plan]:
    """Return the market of the devices that are used, and its plan; see `choose`."""
    if option == "mini_cost":
        return _cheapest(request)
    if option == "mini_parallelism":
        for devices in range(_fewest(request), request.devices):
            fewer = replace(request, devices=devices)
            try:
                if _can_fit(fewer):
                    return _in_time(fewer, option)
            except (InfeasibleError, LayoutError):  # the cluster may not offer this number
                continue
    return _in_time(request, option)


def _cheapest(request: Request) -> tuple[Market, Plan]:
    """Return the plan with the fewest device-seconds per step that meets the deadline.

    The price of a device-hour is the same for all plans, so it does not change their order. Of two
    plans that cost the same, the faster one is chosen.

    Raises:
        InfeasibleError: nothing fits on any number of devices, or no plan meets the deadline.
    """
    limit = inf if (given := request.budget.max_step_seconds) is None else given
    points: list[ProfilePoint] = []
    in_time: list[tuple[Market, Plan]] = []
    for devices in request.budget.parallelism:
        on_devices = replace(request, devices=devices)
        with _watch(on_devices) as watch:
            market = Market(on_devices)
            plan, errors = _first_that_works(market, "mini_cost")
        points.append(_point_of(market, plan, watch.ran_out))
        if plan is not None and plan.predicted_step_seconds <= limit:
            in_time = sorted([*in_time, (market, plan)], key=_cost)[:1]
    if not in_time:
        if any(point.fits for point in points):
            raise _too_slow(points, limit)
        raise infeasible(market.request, market.offers, market.findings, errors)
    ((market, plan),) = in_time
    note = "mini_cost chose among " + "; ".join(map(str, points))
    return market, replace(plan, notes=(*plan.notes, note))


def _cost(market_and_plan: tuple[Market, Plan]) -> tuple[int, int]:
    """Return the device-nanoseconds of a step, and its nanoseconds."""
    _, plan = market_and_plan
    return plan.devices * plan.executed_nanoseconds, plan.executed_nanoseconds


def _too_slow(points: Sequence[ProfilePoint], limit: float) -> InfeasibleError:
    """Return the error for a deadline that no plan meets."""
    times = [(point.time_seconds, point.devices) for point in points]
    seconds, devices = min((time, count) for time, count in times if time is not None)
    return InfeasibleError(
        f"a step of 'mini_cost' takes at most {limit:g} s. Got {seconds:.4g} s for the fastest "
        f"plan, on {devices_of(devices)}. Allow a step more time, or start more devices."
    )


def _fewest(request: Request) -> int:
    """Return the least number of devices that can run the request: one for each stage."""
    stages = None if request.pipeline is None else request.pipeline.stages
    return stages or 1


def _can_fit(request: Request) -> bool:
    """Whether a strategy may fit the memory of the request's devices, by a lower bound."""
    usable = request.usable_bytes(request.devices)
    if request.pipeline is not None or request.accumulate:
        return can_hold_variables(request)
    if request.keep_less:
        request = replace(request, space=FRUGAL)
    return least_bytes(request, request.devices) <= usable


def _watch(request: Request) -> Watch:
    """Return the watch that ends all searches and dry runs for the request's devices."""
    seconds = request.search_seconds
    return Watch(seconds=None if seconds is None else _ALL_SECONDS * seconds)


def _in_time(request: Request, option: str) -> tuple[Market, Plan]:
    """Return the market of a request, and its plan.

    Raises:
        InfeasibleError: no offer fits.
        Exception: a single offer fits, and its plan cannot be made.
    """
    with _watch(request):
        market = Market(request)
        plan, errors = _first_that_works(market, option)
        if plan is None:
            raise infeasible(market.request, market.offers, market.findings, errors)
        return market, plan


def _first_that_works(market: Market, option: str) -> tuple[Plan | None, list[Exception]]:
    """Return the plan of the simplest offer within 3 % of the fastest (`SAME_TIME`).

    The choice is repeated until the best offer has a plan. The best offer first gets the price that
    its peak of memory allows, then the price of its plan; both may be higher than before. An offer
    is dropped if no peak fits, or if its plan cannot be executed.

    Returns:
        The plan, or None if no offer fits; and the errors of dropped offers.

    Raises:
        Exception: a single offer fits, and its plan cannot be made.
    """
    priced = [
        _PricedOffer(offer, offer.price) for offer in market.offers if offer.price is not None
    ]
    reasons: list[str] = []
    errors: list[Exception] = []
    while priced:
        close = (1 + SAME_TIME) * min(each.price for each in priced)
        near = [each for each in priced if each.price <= close]
        best = min(near, key=lambda each: (each.offer.complexity, each.price))
        if best.plan is not None:
            notes = [*best.plan.notes, *market.findings.notes, *map(left_out, reasons)]
            plan = replace(best.plan, notes=tuple(dict.fromkeys(notes)))
            return _with_market(plan, market, best.offer), errors
        priced.remove(best)
        try:
            priced.append(_priced_again(market, best, option))
        except Exception as error:
            errors.append(error)
            reasons.append(f"{best.offer.kind}: {first_line(error)}")
    if len(errors) == 1 and not isinstance(errors[0], InfeasibleError):
        raise errors[0]
    return None, errors


@dataclass(frozen=True, slots=True, eq=False)
class _PricedOffer:
    """An offer with its price.

    Attributes:
        offer: the offer.
        price: nanoseconds of a step, as far as they are known.
        is_allowed: whether the price is that of a strategy whose peak fits the memory.
        plan: the plan, once it is made.
    """

    offer: Offer
    price: int
    is_allowed: bool = False
    plan: Plan | None = None


def _priced_again(market: Market, priced: _PricedOffer, option: str) -> _PricedOffer:
    """Return an offer with the price that its peak allows; if it has that, with its plan's price.

    Raises:
        GraphError: the dry runs of its stages fail, and there are other offers.
        Exception: no peak fits, or no plan can be executed.
    """
    if not priced.is_allowed:
        return replace(priced, price=priced.offer.allowed_price, is_allowed=True)
    plan = priced.offer.plan(option)
    if failed_in_dry_run(market.request, plan) and len(market.offers) > 1:
        raise GraphError(plan.notes[-1])
    return replace(priced, price=plan.executed_nanoseconds, plan=plan)


def _with_market(plan: Plan, market: Market, offer: Offer) -> Plan:
    """Return a plan of an offer with the frontier of its market, and with the times on fewer
    devices."""
    offers, request = market.offers, market.request
    whole = offers[0]
    problem = whole.problem if isinstance(whole, Strategies) and not request.pins.words else None
    if problem is not None:
        others = other_strategies(whole.request, problem)
        plan = replace(plan, details=replace(plan.details, others=others))
    if not plan.fewer_devices:
        failures: list[str] = []
        times = fewer_devices(request, problem, failures)
        plan = replace(plan, fewer_devices=times, notes=(*plan.notes, *failures))
    return market.with_frontier(plan, offer)
