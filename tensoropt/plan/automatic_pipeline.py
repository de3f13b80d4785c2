"""``pipeline="auto"``: strategies with and without stages and microbatches on one frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tensoropt.errors import GraphError, InfeasibleError, LayoutError
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.choose import choice_of, choose, infeasible
from tensoropt.plan.from_pipeline import plan_for_pipeline
from tensoropt.plan.frontier_search import search_frontier
from tensoropt.plan.microbatch_counts import microbatch_counts
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.pipeline_bound import PipelineBound
from tensoropt.plan.pipeline_choice import pipeline_notes
from tensoropt.plan.pipeline_peak import fitting_plan
from tensoropt.plan.pipeline_search import PipelineSearch
from tensoropt.plan.plan import Plan
from tensoropt.plan.request import Request
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["choose_automatically", "profile_automatically"]

_WORTH = 0.97
"""Shares of a step's time: stages and microbatches are for what is predicted to take less."""

_Points = list[tuple[int, int]]


def choose_automatically(request: Request, option: str) -> Plan:
    """The plan of the fastest strategy that fits, with stages, in microbatches, or without.

    Args:
        request: with ``pipeline``; its ``cut`` has the number of microbatches, if that is given.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice.

    Raises:
        InfeasibleError: none fits.
    """
    if option == "mini_parallelism":
        for devices in range(1, request.devices):
            try:
                return _choose(replace(request, devices=devices), option)
            except (InfeasibleError, LayoutError):
                continue
    return _choose(request, option)


def profile_automatically(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The least time of a step at each number of devices, with stages or without."""
    points = []
    for devices in parallelism:
        own, usable = replace(request, devices=devices), request.usable_bytes(devices)
        _, frontier = search_frontier(own, devices)
        fits = [time for memory, time in _points(frontier) if memory <= usable]
        every = _points(frontier) + _Alternatives.of(own, frontier, min(fits, default=None)).points
        fitting = [(time, memory) for memory, time in every if memory <= usable]
        if fitting:
            points.append(ProfilePoint(devices, min(fitting)[0] / 1e9, min(fitting)[1]))
        else:
            points.append(ProfilePoint(devices, None, min(every)[0]))
    return ParallelismProfile(tuple(points))


def _choose(request: Request, option: str) -> Plan:
    usable = request.usable_bytes(request.devices)
    problem, frontier = search_frontier(request, request.devices)
    least = int(frontier.memory[0])
    best = choice_of(request, problem, frontier, option) if least <= usable else None
    fits = best is not None and not best.excess_bytes
    time = best.planned.time if best is not None and fits else None
    others = _Alternatives.of(request, frontier, time)
    plan = others.fastest(option, time)
    if plan is None:
        if best is None or not fits:
            raise InfeasibleError(f"{infeasible(request, least, best)}{others.why_not}")
        plan = best.plan()
    if others.refused:
        return replace(plan, notes=(*plan.notes, others.refused))
    if not others.pipelines:
        return plan
    every = {*_points(frontier), *others.points, *plan.frontier}
    points = tuple(_undominated(every))
    return replace(
        plan, frontier=points, exact=False, within=None, notes=(*plan.notes, _merged(time))
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Alternatives:
    """Pipelines, and microbatches of all devices, where these can be wanted.

    Attributes:
        request: on the devices that are used.
        search: what found them; None where they are not looked for.
        pipelines: by ascending memory; those of one stage are microbatches alone.
        refused: why there can be none, where they were wanted.
    """

    request: Request
    search: PipelineSearch | None = None
    pipelines: tuple[Pipeline, ...] = ()
    refused: str = ""

    @classmethod
    def of(cls, request: Request, frontier: Frontier, time: int | None) -> _Alternatives:
        """They are looked for where nothing fits the memory, or by bounds they can be faster.

        Microbatches alone make no step shorter than the frontier's fastest: they are for memory
        limits that this does not fit.

        Args:
            request: with ``pipeline``.
            frontier: without.
            time: of its fastest point that fits, None if none does.
        """
        assert request.pipeline is not None, "asked for"
        wanted = request.pipeline.microbatches
        is_limited = time is None or time > frontier.time[-1]
        fewest = 1 if is_limited and wanted is None else 2
        if request.devices < fewest:
            return cls(request)
        bound = PipelineBound(request)

        def is_wanted(count: int) -> bool:
            if time is None:
                return True
            every = range(fewest, request.devices + 1)
            return any(bound.nanoseconds(n, count) < _WORTH * time for n in every)

        examples = min((request.shapes[name][0] for name in request.batch_placeholders), default=1)
        likely = [1 << n for n in range(1, examples.bit_length())] if wanted is None else [wanted]
        if not any(map(is_wanted, likely)):
            return cls(request)
        try:
            counts = microbatch_counts(request, wanted, request.devices)
        except GraphError as error:
            return cls(request, refused=f"pipeline='auto' has looked at none: {error}")
        counts = [count for count in counts if is_wanted(count)]
        if not counts:
            return cls(request)
        search = PipelineSearch(request, request.devices, (fewest, request.devices), counts)
        return cls(request, search, search.frontier)

    @property
    def points(self) -> _Points:
        """Memory and time of each."""
        start = 0 if self.search is None else self.search.step_nanoseconds
        return [(each.memory, each.time + start) for each in self.pipelines]

    @property
    def why_not(self) -> str:
        """Why they are no way out, in an error."""
        if self.refused:
            return f" {self.refused}"
        least = min((each.memory for each in self.pipelines), default=0)
        return f" The least of its pipelines and microbatches takes {least:,} bytes." * bool(least)

    def fastest(self, option: str, time: int | None) -> Plan | None:
        """The plan of the fastest that fits and can be executed; None if others are as fast."""
        usable = self.request.usable_bytes(self.request.devices)
        fits = [
            (memory, partial(self._plan, pipeline, option))
            for pipeline, (memory, taken) in zip(self.pipelines, self.points, strict=True)
            if memory <= usable and (time is None or taken < _WORTH * time)
        ]
        if not fits:
            return None
        try:
            plan = fitting_plan(self.request, fits[::-1])
        except (GraphError, InfeasibleError):
            return None
        return plan if time is None or plan.time_nanoseconds < _WORTH * time else None

    def _plan(self, pipeline: Pipeline, option: str) -> Plan:
        assert self.search is not None, "which found it"
        if len(pipeline.stages) == 1:
            own = self.request.in_microbatches(pipeline.microbatches)
            return replace(choose(own, "mini_time").plan(), option=option)
        notes = pipeline_notes(self.search)
        return plan_for_pipeline(self.request, self.search, pipeline, self.points, option, notes)


def _merged(time: int | None) -> str:
    without = "nothing fits without" if time is None else f"{time / 1e6:.3f} ms a step without"
    return f"pipeline='auto': stages and microbatches are on the frontier, too; {without}"


def _points(frontier: Frontier) -> _Points:
    return list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))


def _undominated(points: set[tuple[int, int]]) -> _Points:
    found: _Points = []
    for memory, time in sorted(points):
        if not found or time < found[-1][1]:
            found.append((memory, time))
    return found
