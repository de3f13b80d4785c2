"""``pipeline="auto"``: strategies with and without stages and microbatches on one frontier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tensoropt.errors import GraphError, InfeasibleError, LayoutError
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.pipeline.stages.schedule import SCHEDULES
from tensoropt.plan.amounts import bytes_of
from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import choice_of, choose, infeasible, preferred
from tensoropt.planner.optional_space import first_line, looked_at
from tensoropt.planner.pipeline_choice import pipeline_notes
from tensoropt.planner.pipeline_peak import Candidate, failed_in_dry_run, fitting_plan
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.plans.from_pipeline import plan_for_pipeline
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.branch_search import branches_side_by_side
from tensoropt.planner.spaces.frontier_search import least_bytes, search_frontier
from tensoropt.planner.spaces.microbatch_counts import microbatch_counts
from tensoropt.planner.spaces.pipeline_bound import PipelineBound
from tensoropt.planner.spaces.pipeline_search import PipelineSearch
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["Others", "choose_automatically", "ordered_candidates", "searched"]

_WORTH = 0.97
"""Shares of a step's time: stages and microbatches are for what is predicted to take less."""
_SHORTEST = 5_000_000
"""Nanoseconds of a step, below which they are not looked for unasked: messages, and small kernels,
take what they could gain."""
_MOST_GAIN = 0.5
"""Share of a step's time that stages win at most, where all devices share its work without."""
_LOOK_SECONDS = 0.003
"""Of one core, for each operator of a step that is looked at: 511 take 1.4."""
_FOREVER = 2**62
_SPACES = "stages and microbatches"
_SIDE_BY_SIDE = -1  # a `Candidate.kind`, of which others are numbers of microbatches
_CUT_SHORT = "search_seconds ended before all stages and microbatches were looked at"

_Points = list[tuple[int, int]]
_Candidates = list[tuple[int, Candidate]]
"""With the nanoseconds of their steps."""


def choose_automatically(request: Request, option: str) -> Plan:
    """The plan of the fastest strategy that fits, with stages, in microbatches, or without.

    Unasked, "mini_parallelism" looks for them only where nothing else fits on all devices.

    Args:
        request: with ``pipeline``; its ``cut`` has the number of microbatches, if that is given.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice.

    Raises:
        InfeasibleError: none fits.
    """
    assert request.pipeline is not None, "wanted"
    if option == "mini_parallelism" and not request.pipeline.is_asked:
        try:
            return choose(request, option).plan()
        except InfeasibleError:
            return _choose(request, option)
    if option == "mini_parallelism":
        for devices in range(1, request.devices):
            try:
                return _choose(replace(request, devices=devices), option)
            except (InfeasibleError, LayoutError):
                continue
    return _choose(request, option)


def ordered_candidates(request: Request, option: str) -> list[Candidate]:
    """What `choose_automatically` chooses from on all devices, the fastest first."""
    problem, frontier, others = searched(request)
    every = [
        *_made_of(request, problem, frontier, option),
        *others.accumulating(option),
        *others.staged(option),
    ]
    usable = request.usable_bytes(request.devices)
    fitting = [pair for pair in every if pair[1].memory <= usable]
    return [candidate for _, candidate in sorted(fitting, key=lambda pair: pair[0])]


def searched(request: Request) -> tuple[GraphProblem, Frontier, Others]:
    """The frontier without stages on all devices, and what is beside it."""
    usable = request.usable_bytes(request.devices)
    problem, frontier = search_frontier(request, request.devices)
    fits = [time for memory, time in _points(frontier) if memory <= usable]
    time = min(fits, default=None)
    with Watch(seconds=_seconds(request, time)):
        return problem, frontier, Others.of(request, frontier, time)


def _choose(request: Request, option: str) -> Plan:
    assert request.pipeline is not None, "wanted"
    usable, is_asked = request.usable_bytes(request.devices), request.pipeline.is_asked
    problem, frontier = search_frontier(request, request.devices)
    least = int(frontier.memory[0])
    best = choice_of(request, problem, frontier, option) if least <= usable else None
    fits = best is not None and not best.excess_bytes
    time = best.planned.time if best is not None and fits else None
    with Watch(seconds=_seconds(request, time)):
        others = Others.of(request, frontier, time)
        plan = looked_at(_SPACES, partial(others.fastest, option), None, others.failures)
    is_without = plan is None
    if plan is None:
        if best is None or not fits:
            without = infeasible(request, least, best, others.enough, others.keeps_less)
            raise InfeasibleError(f"{without}{others.why_not}")
        plan = best.plan()
    if not plan.fewer_devices:
        times = fewer_devices(request, problem, others.failures)
        plan = replace(plan, fewer_devices=times)
    plan = replace(plan, notes=(*plan.notes, *dict.fromkeys(others.failures)))
    if is_without and not is_asked:
        return plan
    if others.is_cut_short:
        plan = replace(plan, notes=(*plan.notes, _CUT_SHORT))
    if others.refused:
        return replace(plan, notes=(*plan.notes, others.refused))
    if not others.points:
        return plan
    points = tuple(_undominated({*_points(frontier), *others.points, *plan.frontier}))
    return replace(
        plan, frontier=points, exact=False, within=None, notes=(*plan.notes, _merged(time))
    )


@dataclass(slots=True, eq=False)
class Others:
    """Pipelines, and microbatches of all devices, where these can be wanted.

    Attributes:
        request: on the devices that are used.
        limit: nanoseconds that a step is to undercut; None where nothing fits without.
        refused: why there can be none, where they were asked for.
        failures: notes on what failed while it was looked at.
        least_held: bytes of a device that they take at least; 0 where they may fit.
        is_cut_short: whether time was over before all were looked at.
        failure: why none of those that fit by the memory that the search adds up is planned.
        accumulated: of microbatches alone, or less that is kept for the backward pass, the
            request, what was searched, and its frontier.
        frugal: requests to keep less, looked at where nothing of `accumulated` fits.
        pipelines: each with the search that knows its stages.
    """

    request: Request
    limit: int | None
    refused: str = ""
    failures: list[str] = field(default_factory=list)
    least_held: int = 0
    is_cut_short: bool = False
    failure: str = ""
    accumulated: list[tuple[Request, GraphProblem, Frontier]] = field(default_factory=list)
    frugal: Sequence[Request] = ()
    pipelines: list[tuple[PipelineSearch, Pipeline]] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, frontier: Frontier, time: int | None) -> Others:
        """They are looked for where nothing fits the memory, or by bounds they can be faster.

        Microbatches alone, and less that is kept, make no step shorter than the frontier's
        fastest: they are for memory limits that this does not fit.

        Args:
            request: with ``pipeline``.
            frontier: without.
            time: of its fastest point that fits, None if none does.
        """
        found = cls(request, None if time is None else round(_WORTH * time))
        assert request.pipeline is not None, "wanted"
        wanted, is_asked = request.pipeline.microbatches, request.pipeline.is_asked
        if time is None:
            held = _least_held(request)
            if held > request.usable_bytes(request.devices):
                found.least_held = held
                return found
        elif not is_asked and (time < _SHORTEST or not _is_worth_a_look(request, time)):
            return found
        if wanted is None and request.pipeline.schedules == SCHEDULES:  # neither is asked for
            branches = partial(branches_side_by_side, request, found.limit)
            found.pipelines += looked_at("branches side by side", branches, [], found.failures)
            found.is_cut_short |= not seconds_left()
        looked_at(_SPACES, partial(found._look_at_numbers, frontier), None, found.failures)
        return found

    def _look_at_numbers(self, frontier: Frontier) -> None:
        """Look at numbers of microbatches and stages that can be wanted by bounds."""
        request = self.request
        assert request.pipeline is not None, "wanted"
        wanted, bound = request.pipeline.microbatches, PipelineBound(request)

        def is_wanted(count: int, fewest: int, most: int) -> bool:
            if self.limit is None:
                return True
            least = min(bound.nanoseconds(n, count) for n in range(fewest, most + 1))
            return max(least, int(frontier.time[-1]) if most == 1 else 0) < self.limit

        examples = min((request.shapes[name][0] for name in request.batch_placeholders), default=1)
        likely = [1 << n for n in range(1, examples.bit_length())] if wanted is None else [wanted]
        if not any(is_wanted(count, 1, request.devices) for count in likely):
            return
        try:
            counts = microbatch_counts(request, wanted, request.devices)
        except GraphError as error:
            if self._is_asked:
                self.refused = f"pipeline='auto' has looked at none: {error}"
            return
        if alone := [n for n in counts if is_wanted(n, 1, 1)]:
            accumulate = partial(self._accumulate, alone if wanted is None else [])
            looked_at("microbatches", accumulate, None, self.failures)
        if request.devices > 1:
            counts = [n for n in counts if is_wanted(n, 2, request.devices)]
            looked_at("stages", partial(self._divide, counts), None, self.failures)

    @property
    def points(self) -> _Points:
        """Memory and time of each."""
        every = [point for *_, frontier in self.accumulated for point in _points(frontier)]
        return every + [(each.memory, _time(search, each)) for search, each in self.pipelines]

    @property
    def enough(self) -> int | None:
        """The memory that the least of them takes, if that is above what there is."""
        least = min(self.points, default=(0, 0))[0]
        return least if least > self.request.usable_bytes(self.request.devices) else None

    @property
    def keeps_less(self) -> bool:
        """Whether strategies were looked at that keep less for the backward pass."""
        return any(own.space == FRUGAL for own, *_ in self.accumulated)

    @property
    def why_not(self) -> str:
        """Why they are no way out, in an error."""
        said = ""
        for reason in dict.fromkeys([self.refused, *self.failures]):
            said += f" {reason}" if reason else ""
        if self.least_held:
            said += (
                " Neither do stages or microbatches fit: variables and their gradients alone take "
                f"{bytes_of(self.least_held)} of each device."
            )
        if self.points:
            least = bytes_of(min(self.points)[0])
            said += f" The least of its pipelines and microbatches takes {least}"
            said += f", but {self.failure}" if self.failure else "."
        return f"{said} {_CUT_SHORT}; allow more." if self.is_cut_short else said

    def fastest(self, option: str) -> Plan | None:
        """The plan of the fastest that fits and can be executed; None if others are as fast."""
        limit = _FOREVER if self.limit is None else self.limit
        plan = self._fitting(self.accumulating(option), limit)
        if plan is None and self.frugal:
            before = len(self.accumulated)
            look = partial(self._look, self.frugal)
            looked_at("strategies that keep less", look, None, self.failures)
            plan = self._fitting(self.accumulating(option, before), limit)
        if plan is not None:
            if not seconds_left():
                self.is_cut_short |= bool(self.pipelines)
                return plan
            limit = round(_WORTH * plan.time_nanoseconds)
        return self._fitting(self.staged(option), limit) or plan

    def accumulating(self, option: str, first: int = 0) -> _Candidates:
        """Microbatches alone, from the first so many of `accumulated` on."""
        return [pair for each in self.accumulated[first:] for pair in _made_of(*each, option)]

    def staged(self, option: str) -> _Candidates:
        """Pipelines, and branches side by side, which are a kind of their own."""

        def kind(each: Pipeline) -> int:
            return _SIDE_BY_SIDE if each.schedule == "side_by_side" else 0

        return [
            (
                _time(search, each),
                Candidate(each.memory, partial(self._staged, search, each, option), kind(each)),
            )
            for search, each in self.pipelines
        ]

    def _fitting(self, candidates: _Candidates, limit: int) -> Plan | None:
        """The fastest that fits and undercuts a limit of time."""
        usable = self.request.usable_bytes(self.request.devices)
        fits = [pair for pair in candidates if pair[0] < limit and pair[1].memory <= usable]
        ordered = [candidate for _, candidate in sorted(fits, key=lambda pair: pair[0])]
        try:
            plan = fitting_plan(self.request, ordered) if ordered else None
        except InfeasibleError as error:
            self.failure = str(error)
            return None
        except Exception as error:
            self.failure = first_line(error)
            self.failures.append(f"{_SPACES} are left out: none can be executed ({self.failure})")
            return None
        if plan is None or plan.time_nanoseconds >= limit:
            return None
        if failed_in_dry_run(self.request, plan):
            self.failure = plan.notes[-1]
            self.failures.append(f"{_SPACES} are left out: none can be executed ({self.failure})")
            return None
        return plan

    def _staged(self, search: PipelineSearch, pipeline: Pipeline, option: str) -> Plan:
        notes = pipeline_notes(search)
        return plan_for_pipeline(self.request, search, pipeline, self.points, option, notes)

    def _accumulate(self, counts: Sequence[int]) -> None:
        """Look at microbatches alone; where they are asked for at such as keep less, too."""
        alone = replace(self.request, pipeline=None)
        requests = [alone.in_microbatches(count) for count in counts]
        frugal = [replace(each, space=FRUGAL) for each in (alone, *requests)]
        if self._is_asked:
            self._look(frugal)
        else:
            self._look(requests)
            self.frugal = frugal

    def _look(self, requests: Iterable[Request]) -> None:
        """Look at them in order, each with a fastest strategy that is slower, and takes less."""
        devices = self.request.devices
        usable, quickest = self.request.usable_bytes(devices), self.limit
        for own in requests:
            if not seconds_left():
                self.is_cut_short = True
                return
            if not self._is_asked and least_bytes(own, devices) > usable:
                continue
            problem, frontier = search_frontier(own, devices)
            self.accumulated.append((own, problem, frontier))
            if quickest is not None and frontier.time[-1] >= quickest:
                return
            if frontier.memory[0] <= usable:
                quickest = int(frontier.time[frontier.fastest(usable)])

    def _divide(self, counts: Sequence[int]) -> None:
        """Look at pipelines: unasked, at such as fit the memory and are fast enough."""
        if not counts:
            return
        if not seconds_left():
            self.is_cut_short = True
            return
        devices, within = self.request.devices, None
        if not self._is_asked:
            start = self.request.cost_model(devices).step_nanoseconds()
            time = None if self.limit is None else self.limit - start
            within = self.request.usable_bytes(devices), time
        search = PipelineSearch(self.request, devices, (2, devices), counts, within)
        try:
            self.pipelines += [(search, each) for each in search.frontier]
        except GraphError:  # fewer operators than stages
            if self._is_asked:
                raise

    @property
    def _is_asked(self) -> bool:
        assert self.request.pipeline is not None, "wanted"
        return self.request.pipeline.is_asked


def _is_worth_a_look(request: Request, time: int) -> bool:
    """Whether stages can win more in the job's steps than looking for them takes. No clock is
    asked, so that the same request has the same plan on any machine."""
    return request.worth_seconds(time, _MOST_GAIN) > _LOOK_SECONDS * len(request.graph)


def _seconds(request: Request, time: int | None) -> float | None:
    """For how long stages are looked for: unasked, for no longer than they can win."""
    assert request.pipeline is not None, "wanted"
    if time is None or request.pipeline.is_asked or request.steps is None:
        return request.search_seconds
    worth = request.worth_seconds(time, _MOST_GAIN)
    return min(worth, request.search_seconds or worth)


def _made_of(
    request: Request, problem: GraphProblem, frontier: Frontier, option: str
) -> _Candidates:
    """The points of a frontier without stages."""
    make = partial(_made, request, problem, frontier, option)
    return [
        (time, Candidate(memory, partial(make, place), request.microbatches))
        for place, (memory, time) in enumerate(_points(frontier))
    ]


def _made(
    request: Request, problem: GraphProblem, frontier: Frontier, option: str, place: int
) -> Plan:
    """The plan of a point, or of data parallelism where that is preferred to the fastest."""
    point = frontier[place]
    if place == frontier.fastest(request.usable_bytes(request.devices)):
        point = preferred(request, problem, frontier) or point
    return plan_for(request, problem, frontier, point, option)


def _least_held(request: Request) -> int:
    """Bytes that variables, slots and gradients take of a device at least, however divided."""
    graph = request.graph
    variables = [op for op in graph if op.is_variable]
    names = {op.name for op in variables}
    held = sum(op.value_spec(0).bytes for op in variables)
    for op in graph:
        tag = op.gradient
        if tag is not None and tag.part == "dense" and tag.x.operator in names:
            held += op.outputs[0].bytes
    return held // request.devices


def _time(search: PipelineSearch, pipeline: Pipeline) -> int:
    return pipeline.time + search.step_nanoseconds


def _merged(time: int | None) -> str:
    without = (
        "nothing fits without"
        if time is None
        else f"{time / 1e6:.3f} ms without (the search's sum)"
    )
    return f"pipeline='auto': stages and microbatches are on the frontier, too; {without}"


def _points(frontier: Frontier) -> _Points:
    return list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))


def _undominated(points: Iterable[tuple[int, int]]) -> _Points:
    found: _Points = []
    for memory, time in sorted(points):
        if not found or time < found[-1][1]:
            found.append((memory, time))
    return found
