"""The offer in which each device runs its part of all operators: a frontier and its choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tensoropt.errors import InfeasibleError
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.plan.ways import way
from tensoropt.planner.offers.executed_frontier import executed_frontier
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.plans.fallbacks import is_demanded, left_out, simple_frontiers
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.dry_runs import NO_TIME, is_quick_to_emit
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.prices.frontier_peaks import FrontierPeaks
from tensoropt.planner.prices.peak import PredictedPeak, fitting_point, predicted_peak
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.step_time import executed_step
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.planner.searches.shared import search_once
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.multilevel.coarse_to_fine import Known
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint

__all__ = ["Choice", "Strategies", "choice_of", "preferred"]

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
        frontier: its frontier of executed steps.
        point: the number of the frontier's fastest point that fits.
        peak: the peak memory of the planned strategy.
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

    def plan(self, option: str) -> Plan:
        """Return the plan for an option."""
        notes = list(self.notes)
        is_free = not self.request.pins.words  # else its data parallelism is not the usual one
        fewer = fewer_devices(self.request, self.problem if is_free else None, notes)
        return plan_for(
            self.request,
            self.problem,
            self.frontier,
            self.planned.strategy,
            option,
            self.peak,
            notes,
            fewer,
        )


def choice_of(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    simplest: FrontierPoint | None = None,
    notes: Sequence[str] = (),
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
        frontier: its frontier of executed steps.
        simplest: the result of `preferred`.
        notes: notes for the plan.
    """
    choice: Choice | None = None
    if simplest is not None:
        peak = predicted_peak(request, problem, simplest.strategy.tolist())
        if not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            point = frontier.fastest(request.usable_bytes(problem.mesh.size))
            noted = (*notes, _PREFERRED)
            choice = Choice(request, problem, frontier, point, peak, simplest, noted)
    if choice is None:
        point, peak = fitting_point(request, problem, frontier)
        choice = Choice(request, problem, frontier, point, peak, notes=tuple(notes))
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
    request: Request, frontier: Frontier, parallel: FrontierPoint | None
) -> FrontierPoint | None:
    """Return data parallelism if it fits and is about as fast as the fastest point that fits.

    Then it is preferred: the fastest of many points owes some of its lead to errors of prediction,
    and users know data parallelism. The result is None if it is not preferred, or if it is the
    fastest point itself.

    Args:
        request: the step.
        frontier: its frontier of executed steps.
        parallel: data parallelism with its executed step; None if there is none.
    """
    usable = request.usable_bytes(request.devices)
    if parallel is None or parallel.memory > usable:
        return None
    fastest = frontier[frontier.fastest(usable)]
    if np.array_equal(fastest.strategy, parallel.strategy):
        return None
    return parallel if parallel.time <= (1 + SAME_TIME) * fastest.time else None


class Strategies(Offer):
    """The offer of a frontier, for the batch at once or in microbatches.

    Args:
        request: the step.
        problem: the searched problem.
        searched: the frontier of the search.
        frontier: the points of the offer with their executed steps; by default those of
            ``searched`` and data parallelism, see `executed_frontier`.

    Attributes:
        problem, searched: as given.
    """

    def __init__(
        self,
        request: Request,
        problem: GraphProblem,
        searched: Frontier,
        frontier: Frontier | None = None,
    ) -> None:
        self.request, self.problem, self.searched = request, problem, searched
        self.kind = "whole batch" if request.microbatches == 1 else "microbatches"
        self._given = frontier
        self._failures: list[str] = []

    @classmethod
    def of(cls, request: Request, known: Known | None = None) -> Strategies:
        """Return the offer of a request, after a search of its frontier.

        Args:
            request: the step.
            known: strategies of a similar step, see `search_frontier`.
        """
        return cls(request, *search_frontier(request, request.devices, known))

    @property
    def known(self) -> Known:
        """What the search of a similar step may begin with."""
        return Known(self.problem, self.searched)

    @cached_property
    def frontier(self) -> Frontier:
        """The strategies that no other beats in both memory and executed step."""
        if self._given is not None:
            return self._given
        request, parallel = self.request, self._parallel
        return executed_frontier(
            self.searched,
            self._step_of,
            len(request.graph),
            request.usable_bytes(request.devices),
            [] if parallel is None else [parallel],
        )

    @cached_property
    def _parallel(self) -> FrontierPoint | None:
        """Data parallelism with its executed step; None on one device, or by other algorithms."""
        if self.request.algorithm != "ft" or self.problem.mesh.size == 1:
            return None
        return attempt("data parallelism", self._data_parallelism, None, self._failures)

    def _data_parallelism(self) -> FrontierPoint:
        (point,) = data_parallel.solve(self.problem)
        return point._replace(time=self._step_of(point))

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        return self.frontier.points

    @cached_property
    def _peaks(self) -> FrontierPeaks:
        shared = self._shared("estimated peaks")
        return FrontierPeaks(self.request, self.problem, self.frontier, shared)

    def _shared(self, name: str) -> dict[bytes, int]:
        """Return a table by the bytes of a strategy, shared by requests with other limits."""
        return search_once(name, self.request, self.problem.mesh.size, dict[bytes, int])

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
        """Return the nanoseconds of a strategy's executed step. They are predicted once."""
        strategy = point.strategy.tobytes()
        if strategy not in self._steps:
            self._steps[strategy] = executed_step(
                self.request, self.problem, point.strategy.tolist(), self._reshard_steps
            )
        return self._steps[strategy]

    @cached_property
    def _reshard_steps(self) -> ReshardSteps:
        mesh = self.problem.mesh
        return ReshardSteps(mesh, self.request.cost_model(mesh.size, mesh).collective_nanoseconds)

    @cached_property
    def _steps(self) -> dict[bytes, int]:
        return self._shared("executed steps")

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
        simplest = self._preferred  # may add to the failures
        return choice_of(self.request, self.problem, self.frontier, simplest, self._failures)

    @cached_property
    def _preferred(self) -> FrontierPoint | None:
        return preferred(self.request, self.frontier, self._parallel)

    @cached_property
    def price(self) -> int | None:
        """The price of the fastest point whose memory fits, or of data parallelism if that is
        preferred; None if no point's memory fits."""
        if not self.fitting:
            return None
        simplest = self._preferred
        return self.price_of(self.fitting[0]) if simplest is None else simplest.time

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
        return self._allowed.plan(option)

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
        strategy = self.frontier.strategies[number]
        return plan_for(self.request, self.problem, self.frontier, strategy, option)
