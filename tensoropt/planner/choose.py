"""From a frontier to a plan: the options of TensorOpt, section 4.1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

import numpy as np

from tensoropt.errors import InfeasibleError, LayoutError
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.plan import Plan
from tensoropt.planner.optional_space import looked_at
from tensoropt.planner.plans.fallbacks import is_demanded, left_out, simple_strategies
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.prices.frontier_peaks import frontier_peaks
from tensoropt.planner.prices.peak import PredictedPeak, fitting_point, predicted_peak
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.frontier_search import least_bytes, search_frontier
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint
from tensoropt.search.watch import Watch, seconds_left

__all__ = [
    "Choice",
    "choice_of",
    "choose",
    "executed_step",
    "infeasible",
    "preferred",
    "profiling",
]

_MOST_DEVICES = 64
_SLOWER_TRIED = 2
"""Points of the frontier that are tried where the dry run of the fastest fails."""
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
        return frontier_peaks(self.request, self.problem, self.frontier, known)


def choose(request: Request, option: str) -> Choice:
    """Choose a point: the fastest that fits the memory limit, of the strategies that are searched.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice.

    Raises:
        InfeasibleError: none fits; names the least memory and the fewest devices that would.
    """
    best: Choice | None = None
    if option == "mini_parallelism":
        for devices, problem, frontier in _fitting(request, range(1, request.devices + 1)):
            best = choice_of(replace(request, devices=devices), problem, frontier, option)
            if not best.excess_bytes:
                return best
        least = 0 if best else least_bytes(request, request.devices)
    else:
        problem, frontier = search_frontier(request, request.devices)
        least = int(frontier.memory[0])
        if least <= request.usable_bytes(request.devices):
            best = choice_of(request, problem, frontier, option)
            if not best.excess_bytes:
                return best
    raise infeasible(request, least, best)


def infeasible(
    request: Request,
    least: int,
    best: Choice | None,
    enough: int | None = None,
    keeps_less: bool = False,
) -> InfeasibleError:
    """The error that says that nothing fits, and what would.

    Args:
        request: the step.
        least: memory of the strategy that takes least.
        best: what was tried of the strategies that fit, whose peaks do not.
        enough: memory of what takes least beside these strategies, if that is known.
        keeps_less: whether what keeps less was looked at, too.
    """
    if best is not None:
        return InfeasibleError(_too_high(best, keeps_less))
    return InfeasibleError(_too_little(request, least, enough or least, keeps_less))


def choice_of(request: Request, problem: GraphProblem, frontier: Frontier, option: str) -> Choice:
    """The fastest point whose memory and peak fit, or data parallelism; of the least excess, if no
    peak fits. Some point's memory does.

    Where the dry run of the choice fails, the first of slower strategies whose dry run succeeds is
    planned: the next points of the frontier, data parallelism, every operator whole.
    """
    notes: list[str] = []
    look = partial(preferred, request, problem, frontier)
    parallel = looked_at("data parallelism", look, None, notes)
    found: Choice | None = None
    if parallel is not None:
        peak = predicted_peak(request, problem, parallel.strategy.tolist())
        if not peak.excess_bytes(request.limit_bytes(problem.mesh.size)):
            point = frontier.fastest(request.usable_bytes(problem.mesh.size))
            notes.append(_PREFERRED)
            found = Choice(request, problem, frontier, point, peak, option, parallel, tuple(notes))
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
    slower = range(choice.point - 1, max(choice.point - 1 - _SLOWER_TRIED, -1), -1)
    for point in (*map(frontier.__getitem__, slower), *simple_strategies(request, problem)):
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


def profiling(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The predicted step of the fastest strategy at each number of devices."""
    points = []
    for devices in parallelism:
        limit = request.usable_bytes(devices)
        problem, frontier = search_frontier(request, devices)
        if frontier.memory[0] > limit:
            points.append(ProfilePoint(devices, None, int(frontier.memory[0])))
            continue
        point = frontier[frontier.fastest(limit)]
        seconds = executed_step(request, problem, point) / 1e9
        points.append(ProfilePoint(devices, seconds, point.memory))
    return ParallelismProfile(tuple(points))


def _fitting(
    request: Request, counts: Iterable[int]
) -> Iterator[tuple[int, GraphProblem, Frontier]]:
    """The numbers of devices on which some strategy fits, by the memory that the search adds up.

    The bound leaves out the memory of edges, so each number that it allows is searched.
    """
    for devices in counts:
        try:
            least = least_bytes(request, devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        usable = request.usable_bytes(devices)
        if least <= usable:
            problem, frontier = search_frontier(request, devices)
            if frontier.memory[0] <= usable:
                yield devices, problem, frontier


def _could_keep_less(request: Request, keeps_less: bool) -> bool:
    """Whether less could be kept, which was not looked at."""
    return request.space == PLAIN and not keeps_less


def _too_little(request: Request, least: int, enough: int, keeps_less: bool) -> str:
    counts = range(request.devices + 1, _MOST_DEVICES + 1)
    with Watch(seconds=request.search_seconds):
        more = next(_fitting(request, takewhile(lambda _: seconds_left() > 0, counts)), None)
        is_over = not seconds_left()
    alone = " without stages and microbatches" if request.pipeline is not None else ""
    if more is not None:
        remedy = f"Use {more[0]} devices, the fewest that would fit{alone}, or raise the limit"
    elif is_over:
        remedy = "Use more devices, or raise the limit"
    else:
        remedy = f"No number of devices up to {_MOST_DEVICES} would fit{alone}; raise the limit"
    usable = request.usable_bytes(request.devices)
    factor = request.cluster_at(request.devices).safety_factor
    frugal = replace(request, space=FRUGAL)
    if _could_keep_less(request, keeps_less) and least_bytes(frugal, request.devices) <= usable:
        remedy = f"Try find_strategy(save_memory=True), which keeps less. {remedy}"
    return (
        f"a strategy takes at most the memory limit of a device, {bytes_of(usable)} after division "
        f"by the safety factor {factor}. Got a least memory of {bytes_of(least)}{alone} on "
        f"{devices_of(request.devices)}. {remedy} to {_limit_for(enough, factor):,} bytes."
    )


def _too_high(choice: Choice, keeps_less: bool) -> str:
    request = choice.request
    could = _could_keep_less(request, keeps_less)
    frugal = "find_strategy(save_memory=True), " if could else ""
    factor = request.cluster_at(request.devices).safety_factor
    kept = int(choice.frontier.memory[choice.point])
    enough = max(choice.peak.bytes, _limit_for(kept, factor))
    return (
        "a step's peak memory is at most the memory limit of a device, "
        f"{bytes_of(request.limit_bytes(request.devices))}. Got a peak of "
        f"{bytes_of(choice.peak.bytes)}, the least of the strategies that were tried on "
        f"{devices_of(request.devices)}. Try {frugal}more devices, a smaller batch, or a limit of "
        f"{enough:,} bytes."
    )


def _limit_for(usable: int, factor: float) -> int:
    """The least limit that leaves so many bytes after division by the safety factor."""
    limit = math.ceil(usable * factor)
    while int(limit / factor) < usable:  # rounding
        limit += 1
    return limit
