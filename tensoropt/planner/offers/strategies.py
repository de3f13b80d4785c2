"""Strategies in which each device has its part of all operators: a frontier, and its choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from tensoropt.errors import InfeasibleError
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.plan.ways import way
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.optional_space import looked_at
from tensoropt.planner.plans.fallbacks import is_demanded, left_out, simple_frontiers
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.estimates import can_be_estimated
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.prices.frontier_peaks import frontier_peaks
from tensoropt.planner.prices.peak import PredictedPeak, fitting_point, predicted_peak
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.planner.searches.shared import search_once
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint

__all__ = ["Choice", "Strategies", "choice_of", "executed_step", "preferred"]

_SLOWER_TRIED = 2
"""Points of the frontier that are tried where the dry run of the fastest fails."""
_EMITTED_OPERATORS = 4_000
"""Operators that are emitted in some seconds."""
_PREFERRED = (
    "data parallelism is planned: steps of the frontier's fastest point are predicted to be at most"
    f" {SAME_TIME:.0%} faster, which is closer than predictions tell"
)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A point that fits the memory limit, and what it was chosen from.

    Attributes:
        request: on the devices that are used.
        problem: that was searched.
        frontier: of the problem.
        point: the number of the frontier's fastest point that fits.
        peak: peak memory of what is planned.
        option: that chose it.
        preferred: what is planned in place of the point: data parallelism where predictions do not
            tell them apart, or the fastest that can be executed.
        notes: for the plan.
    """

    request: Request
    problem: GraphProblem
    frontier: Frontier
    point: int
    peak: PredictedPeak
    option: str
    preferred: FrontierPoint | None = None
    notes: tuple[str, ...] = ()

    @property
    def excess_bytes(self) -> int:
        """By how much the peak is above the memory limit, where no point was found that fits."""
        return self.peak.excess_bytes(self.request.limit_bytes(self.request.devices))

    @property
    def planned(self) -> FrontierPoint:
        """The point, or what is preferred to it."""
        return self.preferred or self.frontier[self.point]

    @property
    def price(self) -> int:
        """Nanoseconds of a step of what is planned, as it is executed."""
        return executed_step(self.request, self.problem, self.planned)

    def plan(self) -> Plan:
        """The plan of the point, or of what is preferred to it."""
        notes = list(self.notes)
        without: tuple[tuple[int, int], ...] = ()
        peaks = looked_at("peaks along the frontier", self.frontier_peaks, without, notes)
        fewer = fewer_devices(self.request, self.problem, notes)
        return plan_for(
            self.request,
            self.problem,
            self.frontier,
            self.planned,
            self.option,
            self.peak,
            notes,
            peaks,
            fewer,
        )

    def frontier_peaks(self) -> tuple[tuple[int, int], ...]:
        """Peaks along the frontier, see `tensoropt.planner.prices.frontier_peaks`."""
        known = {} if self.preferred else {self.point: self.peak}
        look = partial(frontier_peaks, self.request, self.problem, self.frontier, known)
        if not can_be_estimated(self.request):  # dry runs are made where a limit is near
            return look()
        devices = self.problem.mesh.size
        return search_once("peaks along the frontier", self.request, devices, look)


def choice_of(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    option: str,
    parallel: Callable[[], FrontierPoint | None] | None = None,
) -> Choice:
    """The fastest point whose memory and peak fit, or data parallelism; of the least excess, if no
    peak fits. Some point's memory does.

    Where the dry run of the choice fails, the first of slower strategies whose dry run succeeds is
    planned: the next points of the frontier, data parallelism, every operator whole.

    Args:
        request: the step.
        problem: that was searched.
        frontier: of it.
        option: that chooses.
        parallel: tells what is `preferred`, if that is worked out elsewhere.
    """
    notes: list[str] = []
    look = parallel or partial(preferred, request, problem, frontier)
    simplest = looked_at("data parallelism", look, None, notes)
    found: Choice | None = None
    if simplest is not None:
        peak = predicted_peak(request, problem, simplest.strategy.tolist())
        if not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            point = frontier.fastest(request.usable_bytes(problem.mesh.size))
            notes.append(_PREFERRED)
            found = Choice(request, problem, frontier, point, peak, option, simplest, tuple(notes))
    if found is None:
        point, peak = fitting_point(request, problem, frontier)
        found = Choice(request, problem, frontier, point, peak, option, notes=tuple(notes))
    return _executable(found) if found.peak.note else found


def _executable(choice: Choice) -> Choice:
    """A slower strategy in place of one whose dry run fails; the same one where all of them do."""
    request, problem, frontier = choice.request, choice.problem, choice.frontier
    if is_demanded(request):
        return choice
    rehearsed = replace(request, saves_dry_runs=False)  # whatever the memory that they take
    simple = simple_frontiers(request, problem)
    slower = range(choice.point - 1, max(choice.point - 1 - _SLOWER_TRIED, -1), -1)
    for point in (*map(frontier.__getitem__, slower), *(each[0] for each in simple)):
        if np.array_equal(point.strategy, choice.planned.strategy):
            continue
        peak = predicted_peak(rehearsed, problem, point.strategy.tolist())
        if not peak.note and not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            notes = tuple(each for each in choice.notes if each != _PREFERRED)
            notes += (left_out(choice.peak.note),)
            return replace(choice, peak=peak, preferred=point, notes=notes)
    return choice


def preferred(request: Request, problem: GraphProblem, frontier: Frontier) -> FrontierPoint | None:
    """Data parallelism, where it is preferred to the frontier's fastest point that fits.

    It is where its step is predicted to take about as long: of many points one is the fastest by
    errors of its prediction, too, and data parallelism is what a script is known to do.
    """
    if request.algorithm != "ft" or problem.mesh.size == 1:
        return None
    usable = request.usable_bytes(problem.mesh.size)
    (found,) = data_parallel.solve(problem)
    if found.memory > usable:
        return None
    fastest = frontier[frontier.fastest(usable)]
    if np.array_equal(fastest.strategy, found.strategy):
        return None
    ours, theirs = (executed_step(request, problem, point) for point in (fastest, found))
    return found if theirs <= (1 + SAME_TIME) * ours else None


def executed_step(request: Request, problem: GraphProblem, point: FrontierPoint) -> int:
    """Nanoseconds of a point's step, predicted as it is executed."""
    planned = request.strategy(problem, point.strategy.tolist())
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    return step_time(planned, cost, reads=request.reads, repeats=request.repeats).total


class Strategies(Offer):
    """The frontier of a step: of the batch at once, or of each of several microbatches.

    Args:
        request: the step.
        problem: that was searched.
        frontier: of it.
    """

    def __init__(self, request: Request, problem: GraphProblem, frontier: Frontier) -> None:
        self.request, self.problem, self.frontier = request, problem, frontier
        self.kind = "whole batch" if request.microbatches == 1 else "microbatches"

    @classmethod
    def of(cls, request: Request) -> Strategies:
        """Search the frontier on the request's devices."""
        return cls(request, *search_frontier(request, request.devices))

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        return self.frontier.points

    def price_of(self, number: int) -> int:
        """See `Offer`."""
        return executed_step(self.request, self.problem, self.frontier[number])

    def way_of(self, _: int) -> str:
        """See `Offer`."""
        request = self.request
        return way(request.substitutions, request.microbatches, keeps_less=request.keeps_less)

    @cached_property
    def choice(self) -> Choice:
        """The fastest point that fits, or what is preferred to it; some point's memory fits."""
        problem, frontier = self.problem, self.frontier
        return choice_of(self.request, problem, frontier, "mini_time", lambda: self._preferred)

    @cached_property
    def _preferred(self) -> FrontierPoint | None:
        return preferred(self.request, self.problem, self.frontier)

    @cached_property
    def price(self) -> int | None:
        """The price of the fastest point whose memory fits, or of what is preferred to it."""
        if self.frontier.memory[0] > self.request.usable_bytes(self.request.devices):
            return None
        return executed_step(self.request, self.problem, self._fastest)

    @cached_property
    def _fastest(self) -> FrontierPoint:
        """The fastest point whose memory fits, or what is preferred to it."""
        point = looked_at(
            "data parallelism", lambda: self._preferred, None, []
        )  # the choice notes a failure
        return self.frontier[self.fitting[0]] if point is None else point

    @cached_property
    def allowed_price(self) -> int:
        """See `Offer`: that of the choice, which mostly is the point that `price` has priced."""
        choice = self._allowed
        if self.price and np.array_equal(choice.planned.strategy, self._fastest.strategy):
            return self.price
        return choice.price

    @property
    def is_quick_to_emit(self) -> bool:
        """Whether a dry run takes at most some seconds, so that it may serve to bound searches."""
        return len(self.request.graph) * self.request.microbatches <= _EMITTED_OPERATORS

    def plan(self, option: str) -> Plan:
        """See `Offer`."""
        return replace(self._allowed, option=option).plan()

    @property
    def _allowed(self) -> Choice:
        """The choice, whose peak fits."""
        if self.choice.excess_bytes:
            raise InfeasibleError("its peak of memory is too high")
        return self.choice

    def plan_of(self, number: int, option: str) -> Plan:
        """See `Offer`."""
        return plan_for(self.request, self.problem, self.frontier, self.frontier[number], option)
