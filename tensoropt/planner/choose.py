"""The options of ``find_strategy``, each a few lines over the market (TensorOpt, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tensoropt.errors import GraphError, InfeasibleError, LayoutError
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
from tensoropt.planner.spaces.stages import least_held
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.solvers import solver

__all__ = ["Candidates", "choose", "chosen", "profiling"]


def choose(request: Request, option: str) -> Plan:
    """The plan of an option.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice.

    Raises:
        InfeasibleError: nothing fits; names the least memory and the fewest devices that would.
        OptionError: more stages are demanded than there are devices.
        GraphError: the step cannot be cut into the microbatches or stages that are demanded.
    """
    return chosen(request, option)[1]


def profiling(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """What "mini_time" plans on each number of devices."""
    points = []
    for devices in parallelism:
        market = Market(replace(request, devices=devices))
        try:
            plan = _planned(market, "mini_time")
        except InfeasibleError:
            points.append(ProfilePoint(devices, None, market.least_bytes))
        else:
            points.append(ProfilePoint(devices, plan.predicted_step_seconds, plan.memory_bytes))
    return ParallelismProfile(tuple(points))


class Candidates:
    """What to measure before a plan is adopted: the chosen plan, and all other points that fit, by
    the search's sums of their times.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", or "mini_parallelism", whose candidates all use the fewest devices.

    Raises:
        InfeasibleError: no strategy fits the memory limit.
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
        return [(self._market.offers[each.offer], each.number) for each in reversed(fitting)]


def chosen(request: Request, option: str) -> tuple[Market, Plan]:
    """The market of the devices that are used, and its plan; see `choose`."""
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
    """The plan of the simplest offer that fits, and is within 3 % of the fastest (`SAME_TIME`).

    An offer whose plan cannot be executed, or has too high a peak of memory, gives way to others.

    Raises:
        InfeasibleError: no offer fits.
        Exception: what making the plan of the only offer that fits has raised.
    """
    waiting = [offer for offer in market.offers if offer.price is not None]
    made: list[tuple[Plan, Offer]] = []
    reasons: list[str] = []
    errors: list[Exception] = []
    while waiting or made:
        every: list[tuple[int, Offer, Plan | None]] = []
        every += [(offer.price or 0, offer, None) for offer in waiting]
        every += [(plan.predicted_nanoseconds, offer, plan) for plan, offer in made]
        close = (1 + SAME_TIME) * min(price for price, *_ in every)
        near = [each for each in every if each[0] <= close]
        _, offer, plan = min(near, key=lambda each: (each[1].complexity, each[0]))
        if plan is not None:
            notes = [*plan.notes, *market.known.notes, *map(left_out, reasons)]
            return _with_market(replace(plan, notes=tuple(dict.fromkeys(notes))), market)
        waiting.remove(offer)
        try:
            made.append((_executable(market, offer, option), offer))
        except Exception as error:
            errors.append(error)
            reasons.append(f"{offer.kind}: {first_line(error)}")
    if len(errors) == 1 and not isinstance(errors[0], InfeasibleError):
        raise errors[0]
    raise infeasible(market.request, market.offers, market.known, errors)


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
        frontier_ways=tuple(offers[each.offer].way_of(each.number) for each in points),
        exact=all(isinstance(each, Strategies) and each.frontier.exact for each in offers),
        within=None if None in gaps else max(gap for gap in gaps if gap is not None),
    )
