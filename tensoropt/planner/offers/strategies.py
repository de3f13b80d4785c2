"""The offer in which each device runs its part of all operators: a frontier and its choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from tensoropt.errors import InfeasibleError
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.plan.ways import way
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.plans.fallbacks import is_demanded, left_out, simple_frontiers
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.dry_runs import NO_TIME, is_quick_to_emit
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.prices.frontier_peaks import FrontierPeaks
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
"""Slower points of the frontier that are tried if the dry run of the chosen one fails."""
_PREFERRED = (
    "data parallelism is planned: steps of the frontier's fastest point are predicted to be at most"
    f" {SAME_TIME:.0%} faster, which is within the error of predictions"
)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The strategy that is planned of a frontier.

    Attributes:
        request: the step, on the devices that are used.
        problem: the searched problem.
        frontier: its frontier.
        point: the number of the frontier's fastest point that fits.
        peak: the peak memory of the planned strategy.
        option: the option for which it was chosen.
        preferred: the strategy that is planned in place of the point: data parallelism if it is
            about as fast, or the fastest strategy that can be executed. If it is None, the point
            is planned.
        notes: notes for the plan.
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
        """The bytes by which the peak exceeds the memory limit; 0 if it fits."""
        return self.peak.excess_bytes(self.request.limit_bytes(self.request.devices))

    @property
    def planned(self) -> FrontierPoint:
        """The planned strategy."""
        return self.preferred or self.frontier[self.point]

    def plan(self) -> Plan:
        """Return the plan."""
        notes = list(self.notes)
        is_free = not self.request.pins.words  # else its data parallelism is not the usual one
        fewer = fewer_devices(self.request, self.problem if is_free else None, notes)
        return plan_for(
            self.request,
            self.problem,
            self.frontier,
            self.planned,
            self.option,
            self.peak,
            notes,
            fewer,
        )


def choice_of(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    option: str,
    parallel: Callable[[], FrontierPoint | None] | None = None,
) -> Choice:
    """Return the strategy that is planned of a frontier.

    It is data parallelism if that is `preferred` and its peak fits; else the fastest point whose
    memory and peak fit; else the point whose peak exceeds the limit least. At least one point's
    memory has to fit.

    If the dry run of this strategy fails, the first slower strategy whose dry run succeeds takes
    its place: the next points of the frontier, data parallelism, every operator whole.

    Args:
        request: the step.
        problem: the searched problem.
        frontier: its frontier.
        option: the option for which a strategy is chosen.
        parallel: returns the result of `preferred`, if a caller has it already.
    """
    notes: list[str] = []
    look = parallel or partial(preferred, request, problem, frontier)
    simplest = attempt("data parallelism", look, None, notes)
    choice: Choice | None = None
    if simplest is not None:
        peak = predicted_peak(request, problem, simplest.strategy.tolist())
        if not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            point = frontier.fastest(request.usable_bytes(problem.mesh.size))
            notes.append(_PREFERRED)
            choice = Choice(request, problem, frontier, point, peak, option, simplest, tuple(notes))
    if choice is None:
        point, peak = fitting_point(request, problem, frontier)
        choice = Choice(request, problem, frontier, point, peak, option, notes=tuple(notes))
    return _executable(choice) if choice.peak.note else choice


def _executable(choice: Choice) -> Choice:
    """Return a slower choice whose dry run succeeds; the same one if the dry runs of all fail."""
    request, problem, frontier = choice.request, choice.problem, choice.frontier
    if is_demanded(request):
        return choice
    with_dry_runs = replace(request, saves_dry_runs=False)
    simple = [points[0] for points in simple_frontiers(request, problem)]
    slower = range(choice.point - 1, max(choice.point - 1 - _SLOWER_TRIED, -1), -1)
    for point in (*map(frontier.__getitem__, slower), *simple):
        if np.array_equal(point.strategy, choice.planned.strategy):
            continue
        peak = predicted_peak(with_dry_runs, problem, point.strategy.tolist())
        if not peak.note and not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            notes = tuple(note for note in choice.notes if note != _PREFERRED)
            notes += (left_out(choice.peak.note),)
            return replace(choice, peak=peak, preferred=point, notes=notes)
    return choice


def preferred(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    step_of: Callable[[FrontierPoint], int] | None = None,
) -> FrontierPoint | None:
    """Return data parallelism if it fits and is about as fast as the fastest point that fits.

    Then it is preferred: the fastest of many points owes some of its lead to errors of prediction,
    and users know data parallelism. The result is None if it is not preferred, or if it is the
    fastest point itself.

    Args:
        request: the step.
        problem: the searched problem.
        frontier: its frontier.
        step_of: returns `executed_step` of a point, if a caller stores it.
    """
    if request.algorithm != "ft" or problem.mesh.size == 1:
        return None
    usable = request.usable_bytes(problem.mesh.size)
    (parallel,) = data_parallel.solve(problem)
    if parallel.memory > usable:
        return None
    fastest = frontier[frontier.fastest(usable)]
    if np.array_equal(fastest.strategy, parallel.strategy):
        return None
    step_of = step_of or partial(executed_step, request, problem)
    return parallel if step_of(parallel) <= (1 + SAME_TIME) * step_of(fastest) else None


def executed_step(request: Request, problem: GraphProblem, point: FrontierPoint) -> int:
    """Return the predicted nanoseconds of a point's step, as it is executed."""
    planned = request.strategy(problem, point.strategy.tolist())
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    return step_time(planned, cost, reads=request.reads, repeats=request.repeats).total


class Strategies(Offer):
    """The offer of a frontier, for the batch at once or in microbatches."""

    def __init__(self, request: Request, problem: GraphProblem, frontier: Frontier) -> None:
        self.request, self.problem, self.frontier = request, problem, frontier
        self.kind = "whole batch" if request.microbatches == 1 else "microbatches"
        self._steps: dict[bytes, int] = {}

    @classmethod
    def of(cls, request: Request) -> Strategies:
        """Return the offer of a request, after a search of its frontier."""
        return cls(request, *search_frontier(request, request.devices))

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        return self.frontier.points

    @cached_property
    def _peaks(self) -> FrontierPeaks:
        request, problem = self.request, self.problem
        shared = search_once("estimated peaks", request, problem.mesh.size, dict[int, int])
        return FrontierPeaks(request, problem, self.frontier, shared)

    def peaks(self, operators: int) -> list[PointPeak | None]:
        """See `Offer`."""
        self._peaks.estimate(operators)
        choice: Choice | None = vars(self).get("choice")  # of a cached property: if it is made
        if choice is None:
            return self._peaks.of_all_points()
        own = choice.planned.memory, choice.planned.time
        numbers = [number for number, point in enumerate(self.points) if point == own]
        return self._peaks.of_all_points(dict.fromkeys(numbers, choice.peak))

    def price_of(self, number: int) -> int:
        """See `Offer`."""
        return self._step_of(self.frontier[number])

    def _step_of(self, point: FrontierPoint) -> int:
        """Return `executed_step` of a point. It is computed once."""
        strategy = point.strategy.tobytes()
        if strategy not in self._steps:
            self._steps[strategy] = executed_step(self.request, self.problem, point)
        return self._steps[strategy]

    def way_of(self, _: int) -> str:
        """See `Offer`."""
        request = self.request
        return way(
            request.substitutions,
            request.microbatches,
            keeps_less=request.keeps_less,
            in_proportion=request.shares is not None,
        )

    @cached_property
    def choice(self) -> Choice:
        """The strategy that is planned. It exists if the memory of at least one point fits."""
        problem, frontier = self.problem, self.frontier
        return choice_of(self.request, problem, frontier, "mini_time", lambda: self._preferred)

    @cached_property
    def _preferred(self) -> FrontierPoint | None:
        return preferred(self.request, self.problem, self.frontier, self._step_of)

    @cached_property
    def price(self) -> int | None:
        """The price of `_fastest`; None if no point's memory fits."""
        if self.frontier.memory[0] > self.request.usable_bytes(self.request.devices):
            return None
        return self._step_of(self._fastest)

    @cached_property
    def _fastest(self) -> FrontierPoint:
        """The fastest point whose memory fits, or data parallelism if that is preferred."""
        failures: list[str] = []  # `choice` notes the same failure
        point = attempt("data parallelism", lambda: self._preferred, None, failures)
        return self.frontier[self.fitting[0]] if point is None else point

    @cached_property
    def allowed_price(self) -> int:
        """The price of the choice."""
        return self._step_of(self._allowed.planned)

    @property
    def is_quick_to_emit(self) -> bool:
        """Whether a dry run takes only some seconds, so that its result can bound searches."""
        return is_quick_to_emit(self.request, self.request.microbatches)

    @property
    def known_price(self) -> int | None:
        """See `Offer`."""
        if self.price is None or not self.is_quick_to_emit or self.choice.excess_bytes:
            return None
        return self.allowed_price

    def plan(self, option: str) -> Plan:
        """See `Offer`."""
        return replace(self._allowed, option=option).plan()

    @property
    def _allowed(self) -> Choice:
        """The choice, if its peak fits."""
        if self.choice.excess_bytes:
            is_bound = self.choice.peak.is_bound
            why = f"may be too high; for a dry run {NO_TIME}" if is_bound else "is too high"
            raise InfeasibleError(f"its peak of memory {why}")
        return self.choice

    def plan_of(self, number: int, option: str) -> Plan:
        """See `Offer`."""
        return plan_for(self.request, self.problem, self.frontier, self.frontier[number], option)
