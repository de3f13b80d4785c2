"""The search of a request's pipelines: blocks, the costs of stages, and the frontier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf

from tensoropt.arrays import Int64Array
from tensoropt.errors import GraphError, InfeasibleError
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.blocks.partition import BLOCKS, partition
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.split.costs import SampleCosts
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.frontier import Counts, pipeline_frontier
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.pipeline.stages.points import Profile
from tensoropt.pipeline.stages.unlike_devices import UnlikeDevices
from tensoropt.planner.request import Request
from tensoropt.planner.searches.step_parts import StepParts
from tensoropt.planner.searches.unlike_profiles import (
    evenly,
    faster_profiles,
    priced_stage,
    unlike_devices,
)
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PLAIN
from tensoropt.problem.model import Problem
from tensoropt.search.find import frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.pareto.frontier import EndedBy, Frontier
from tensoropt.search.watch import Watch, is_stopped_by_user, seconds_left
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign, assign_forward
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule
from tensoropt.transformations.staged.staged import staged

__all__ = ["ANY_TIME", "PipelineSearch"]

_GAP = 0.01  # of a frontier of pipelines, for given costs of stages
_STAGE_GAP = 0.05  # of the frontier of a stage's strategies
_SMALL_STAGE_GAP = 0.01
"""The same gap for problems of few cells. An exact search would take 50 times as long, and find
thousands of points; a stage uses a dozen of them."""
_BOUNDED = replace(DEFAULT_LIMITS, bounded_cells=0)  # a search of any size uses bounds
_BOUND_GAP = 0.02  # of the lower bound of a pipeline's time
_REPLICATED = 1.25  # the speed-up of a split stage over a replicated one that may be hoped for
_ESTIMATED = 1.25
"""The most by which the estimate of a pipeline's step may exceed its simulation, as a factor. Of
6,000 random pipelines of 2 to 8 stages and 2 to 16 microbatches, 0.3 % exceeded it."""
_MOST_PROMISING = 3  # numbers of microbatches that are searched within limits if one of them fits
ANY_TIME = 1 << 60
"""Nanoseconds that every step undercuts. With a time to undercut, a search may end without result,
as it should where something else fits and its price is not known yet."""
_NO_LIMIT = 2**62
"""Bytes. Pipelines that do not fit the memory are points of a frontier, too."""


@dataclass(frozen=True, slots=True)
class _Promising:
    """Pipelines that are worth a search.

    Attributes:
        microbatches: their numbers of microbatches.
        sizes: the numbers of devices of their stages, the most promising first.
        bound: a lower bound of their time, in nanoseconds.
        guess: the time of the fastest with replicated stages; infinite if none is within limits.
    """

    microbatches: tuple[int, ...]
    sizes: tuple[int, ...]
    bound: float
    guess: float = inf


class PipelineSearch:
    """The search of a request's pipelines.

    Args:
        request: the step.
        devices: the number of devices, all of which are used.
        stages: the fewest stages, at least two, and the most.
        microbatches: the numbers of microbatches; each divides the batch.
        within: the bytes of a device, and the nanoseconds of a step (or None) as it is executed,
            which a pipeline has to undercut. Only pipelines that may be the fastest are searched,
            by estimates of their steps. None for the whole frontier.
        plain: the search of the same pipelines with stages that keep all tensors, if the request's
            stages may keep fewer. Its strategies are added to every stage.
        parts: the components of the step, if a caller has them already.
        block: int64[components], the block of each component; by default balanced blocks are made.
        known: strategies of stages that replace searches, see `SplitProfile`.
        like: a search of the same step, devices and microbatches. Its searches of stages are used.

    Attributes:
        ended_by: why this search, or one of strategies of stages, ended early; empty if none did.
    """

    def __init__(
        self,
        request: Request,
        devices: int,
        stages: tuple[int, int],
        microbatches: Sequence[int],
        within: tuple[int, int | None] | None = None,
        plain: PipelineSearch | None = None,
        parts: StepParts | None = None,
        block: Int64Array | None = None,
        known: Mapping[tuple[int, int], Int64Array] | None = None,
        like: PipelineSearch | None = None,
    ) -> None:
        self._request, self._devices, self._like = request, devices, like
        self._stages, self._microbatches = stages, tuple(microbatches)
        self._within, self._plain = within, plain
        if plain is not None:
            parts, block = plain.parts, plain.block
        self._parts, self._given_block, self._known = parts, block, known
        self._cuts: dict[int, BatchCut] = {}
        self._unbounded: list[int] = []  # numbers of microbatches for which there was no time
        self.ended_by: EndedBy = ""

    @cached_property
    def frontier(self) -> tuple[Pipeline, ...]:
        """The pipelines that no other beats, by ascending memory, also those that do not fit.

        Within limits, only promising pipelines are searched while the current `Watch` has time, and
        only the fastest is exact. With a limit of memory alone, one pipeline is searched for longer
        (`_goes_on`), and with numbers of microbatches that time has left without a bound.

        Raises:
            InfeasibleError: if there are no limits, and still no pipeline.
        """
        frontier: tuple[Pipeline, ...] = ()
        ordered = self._in_order()
        for number, promising in enumerate(ordered):
            if frontier and (number >= _MOST_PROMISING or promising.bound >= frontier[-1].time):
                continue
            if number and not self._goes_on(frontier):
                self.ended_by = "time"
                break
            priced = self._priced_in_time(promising, frontier)
            if not priced.sizes:
                break
            frontier = self._searched_further(priced, ordered[0].guess, frontier)
        while self._unbounded and self._is_needed and not frontier:
            bounded = self._bounded(self._unbounded.pop(0), True)
            if bounded is not None:
                priced = self._priced_in_time(bounded, frontier)
                frontier = self._searched_further(priced, bounded.guess, frontier)
        return frontier

    def _searched_further(
        self, priced: _Promising, guess: float, known: tuple[Pipeline, ...]
    ) -> tuple[Pipeline, ...]:
        """Return the frontier of known pipelines and of others whose stages are priced.

        Args:
            priced: the others.
            guess: the time of a pipeline that may be within limits. Those that are not about as
                fast are left out, if the search has no time to undercut.
            known: the known ones.
        """
        is_needed = (problem := self._problem()).time_limit is None
        if is_needed and guess < inf:
            problem = replace(problem, time_limit=round(_ESTIMATED * guess))
        try:
            known = pipeline_frontier(
                problem,
                self._schedules,
                sizes=sorted(priced.sizes),
                epsilon=max(_GAP, self._request.epsilon),
                known=known,
                counts=Counts(self._stages, priced.microbatches),
                is_needed=is_needed,
            )
        except InfeasibleError:
            if self._within is None:
                raise
        if not seconds_left():
            self.ended_by = "time"
        return known

    def _in_order(self) -> list[_Promising]:
        """Return the pipelines that are searched, in the order of the search."""
        if self._within is None:
            return [_Promising(self._microbatches, tuple(self.sizes), 0)]
        plain = self._plain or self
        ordered = (plain if plain._within == self._within else self)._promising
        return ordered if self._within[1] is None else ordered[:_MOST_PROMISING]

    def _goes_on(self, found: Sequence[object]) -> bool:
        """Whether the search goes on: while it has time, or while it needs to find something."""
        return bool(seconds_left()) or (self._is_needed and not found)

    @property
    def _is_needed(self) -> bool:
        """Whether a pipeline is searched at any time, since nothing is known to fit.

        Then there is no step's time to undercut. Ctrl-C ends the search nevertheless.
        """
        return self._within is not None and self._within[1] is None and not is_stopped_by_user()

    def _priced_in_time(self, promising: _Promising, found: Sequence[Pipeline]) -> _Promising:
        """Return the pipelines whose stages are priced before the time is over.

        The stages of a number of devices and of microbatches are priced together, which may take
        seconds. Without limits, those of the first number of microbatches are priced at any time.
        """
        counts: list[int] = []
        sizes: list[int] = []
        for count in promising.microbatches:
            sizes = []
            for size in promising.sizes:
                if (self._within is not None or counts) and not self._goes_on(found):
                    self.ended_by = "time"
                    break
                self._price(size, count)
                sizes.append(size)
            if len(sizes) == len(promising.sizes):
                counts.append(count)
        if self._within is None:
            return replace(promising, microbatches=tuple(counts))
        return replace(promising, sizes=tuple(sizes))  # of one number of microbatches

    def _price(self, size: int, count: int) -> None:
        """Price all stages with a number of devices, for a number of microbatches."""
        machines, machine = self.parts.machines, self.parts.links.machine
        for copies in (number for number in range(1, machines + 1) if machines % number == 0):
            examples = self.examples // copies // count
            if examples and size <= machines // copies * machine:
                for profile in (self.profile, *self._faster.values()):
                    profile.price(size, examples, copies)

    @property
    def _schedules(self) -> tuple[Schedule, ...]:
        """The searched schedules. None of them is faster than the first."""
        wanted = self._request.pipeline
        return SCHEDULES if wanted is None else wanted.schedules

    def problem(self, profile: Profile, margin: float = 1.0) -> PipelineProblem:
        """Return the problem of pipelines whose stages are as slow as the slowest device.

        Args:
            profile: gives the costs of stages.
            margin: multiplies the time that is to be undercut.
        """
        parts = self.parts
        memory, time = (_NO_LIMIT, None) if self._within is None else self._within
        time = None if time is None else round(margin * _ESTIMATED * time)
        return PipelineProblem(
            self.blocks, profile, parts.links, parts.machines, self.examples, memory, time
        )

    def _problem(
        self, of: Callable[[SplitProfile], Profile] = lambda each: each, margin: float = 1.0
    ) -> PipelineProblem:
        """Return the problem whose pipelines are searched.

        Args:
            of: returns the profile in place of one of this search; by default the same.
            margin: multiplies the time that is to be undercut.
        """
        problem = self.problem(of(self.profile), margin)
        faster = {speed: of(each) for speed, each in self._faster.items()}
        return replace(problem, unlike=self._unlike, faster=faster)

    @cached_property
    def _promising(self) -> list[_Promising]:
        """The pipelines to search within limits, in the order of the search.

        A number of microbatches has a bound: the fastest pipeline if devices share the work of a
        stage evenly, without sums or resharding. If it is too slow, the number is left out. The
        number with the fastest replicated stages comes first; others follow by their bounds. Stages
        get the numbers of devices that they have in these two pipelines, and all smaller numbers:
        the bound favours many devices. After a number with which both times rise, no larger ones
        are bounded, since their bounds take longest.
        """
        timed: list[_Promising] = []
        for number, count in enumerate(self._microbatches):
            bounded = self._bounded(count, self._is_needed and not timed)
            if not self._goes_on(timed):  # the bound may lack pipelines of many stages
                self.ended_by = "time"
                self._unbounded = list(self._microbatches[number:])
                break
            if bounded is None:
                continue
            last = timed[-1] if timed else bounded
            timed.append(bounded)
            if bounded.guess > last.guess and bounded.bound > last.bound:
                break
        timed.sort(key=lambda each: (each.guess, each.bound))
        return [*timed[:1], *sorted(timed[1:], key=lambda each: each.bound)]

    def _bounded(self, count: int, is_needed: bool) -> _Promising | None:
        """Return the pipelines with ``count`` microbatches; None if none is within limits.

        Args:
            count: the number of microbatches.
            is_needed: see `_fastest`.
        """
        least = self._fastest(evenly, count, 1.0, is_needed)
        if least is None:
            return None
        replicated = self._fastest(lambda each: each.replicated, count, _REPLICATED, is_needed)
        pipelines = [least] if replicated is None else [replicated, least]
        stages = (stage for pipeline in pipelines for stage in pipeline.stages)
        sizes = dict.fromkeys([self.sizes[0], *(stage.devices for stage in stages)])
        sizes.update(dict.fromkeys(n for n in self.sizes if n < max(sizes)))
        guess = inf if replicated is None else replicated.time
        return _Promising((count,), tuple(sizes), least.time / (1 + _BOUND_GAP), guess)

    def _fastest(
        self, of: Callable[[SplitProfile], Profile], count: int, margin: float, is_needed: bool
    ) -> Pipeline | None:
        """Return the fastest pipeline with ``count`` microbatches; None if none is within limits.

        Args:
            of, margin: see `_problem`.
            count: the number of microbatches.
            is_needed: whether time alone does not end the search before there is one.
        """
        counts = Counts(self._stages, (count,))
        problem = self._problem(of, margin)
        problem = replace(problem, time_limit=problem.time_limit or ANY_TIME)
        with suppress(InfeasibleError):
            return pipeline_frontier(
                problem,
                self._schedules[:1],
                sizes=self.sizes,
                epsilon=_BOUND_GAP,
                counts=counts,
                is_needed=is_needed,
            )[-1]
        return None

    @cached_property
    def parts(self) -> StepParts:
        """The components of the step."""
        return self._parts or StepParts.of(self._request, self._devices)

    @property
    def blocks(self) -> int:
        """The number of blocks of which stages are made."""
        return int(self.block.max()) + 1

    @property
    def examples(self) -> int:
        """The examples of a batch."""
        return self.parts.costs.growth.examples

    @property
    def step_nanoseconds(self) -> int:
        """The fixed time of every step, which is added to the pipeline's time."""
        return self.parts.cost.step_nanoseconds()

    def sending_nanoseconds(self, pipeline: Pipeline) -> int:
        """Return the time that a step spends sending, in the stage that sends longest."""
        count, copies, most = pipeline.microbatches, pipeline.copies, 0
        examples = self.examples // copies // count
        for number, stage in enumerate(pipeline.stages):
            profile = self.profile_of(pipeline, number)
            points = profile(stage.first, stage.last, stage.devices, examples, copies)
            assert points is not None, "the stage has points"
            computing = int(points.values[stage.point, :2].sum())
            computing += stage.recompute * int(points.values[stage.point, 0])
            most = max(most, count * (stage.forward + stage.backward - computing))
        return most

    def strategies_of(self, pipeline: Pipeline) -> dict[tuple[int, int], Int64Array]:
        """Return the strategies found for a pipeline's stages, by `SplitProfile.searched_for`."""
        examples = self.examples // pipeline.copies // pipeline.microbatches
        keys = [self.profile.searched_for(stage, examples) for stage in pipeline.stages]
        return {key: self.profile.strategies_for(key) for key in keys if key is not None}

    def strategies(self, pipeline: Pipeline) -> list[tuple[SampleCosts, Int64Array]]:
        """Return the strategy of each stage, as `SplitProfile.strategy` does."""
        examples = self.examples // pipeline.copies // pipeline.microbatches
        return [
            self.profile_of(pipeline, number).strategy(stage, examples, pipeline.copies)
            for number, stage in enumerate(pipeline.stages)
        ]

    def keeps_less(self, pipeline: Pipeline) -> bool:
        """Whether an operator of a pipeline keeps fewer tensors than the backward pass reads."""
        for costs, chosen in self.strategies(pipeline):
            for group, number in zip(costs.annotated.choices, chosen.tolist(), strict=True):
                if number >= len(group.options) // len(group.options.kept):
                    return True
        return False

    def cut(self, microbatches: int) -> BatchCut:
        """Return the cut of the step into microbatches."""
        if microbatches not in self._cuts:
            graph, batch = self._request.graph, self._request.batch_placeholders
            self._cuts[microbatches] = cut_along_batch(graph, batch, microbatches)
        return self._cuts[microbatches]

    def stage_of(self, pipeline: Pipeline) -> Mapping[str, int]:
        """Return the stage of each operator of the step, `SHARED` for operators of all stages.

        Raises:
            GraphError: if the step cannot be executed by these stages.
        """
        ends = [stage.last for stage in pipeline.stages]
        return self.stages_by_blocks(ends, pipeline.microbatches, pipeline.schedule)

    def stages_by_blocks(
        self, ends: Sequence[int], microbatches: int = 1, schedule: Schedule = "side_by_side"
    ) -> Mapping[str, int]:
        """Return `stage_of` a pipeline, given by the last block of each stage."""
        cut = self.cut(microbatches)
        planned = {
            atom.operator: next(n for n, end in enumerate(ends) if block <= end)
            for atom, block in zip(self.parts.costs.atoms.atoms, self.block.tolist(), strict=True)
        }
        passes = assign_forward(cut, planned, len(ends) - 1)
        # It raises what the whole step would raise.
        staged(replace(cut, made=1), passes, self._request.roots, schedule)
        return {**assign(cut, passes), **passes}

    @cached_property
    def _unlike(self) -> UnlikeDevices | None:
        """The devices, if they differ in speed or memory."""
        return unlike_devices(self._request, self._devices, self.parts)

    @cached_property
    def _faster(self) -> Mapping[float, SplitProfile]:
        """The profiles of the speeds of devices above the least."""
        if self._unlike is None:
            return {}
        return faster_profiles(self._request, self._unlike, self.parts, self.profile)

    def profile_of(self, pipeline: Pipeline, number: int) -> SplitProfile:
        """Return the profile of a pipeline's stage, by the speed of its slowest device."""
        if self._unlike is None or pipeline.schedule == "side_by_side":
            return self.profile
        devices = pipeline.devices_of(number)
        speed = min(self._unlike.kinds[device].speed for device in devices)
        return self._faster.get(speed, self.profile)

    @cached_property
    def profile(self) -> SplitProfile:
        """The profile that gives the costs of stages on the slowest devices."""
        request, parts = self._request, self.parts
        replicated = ReplicatedProfile(parts.costs, self.block, parts.cost, parts.links)
        if self._like is not None:
            return self._like.profile.of_blocks(self.block, replicated)
        return SplitProfile(
            parts.costs,
            request.reads,
            request.batch_placeholders,
            self.block,
            partial(priced_stage, request, self._devices),
            parts.links,
            self._devices,
            replicated,
            self._searched,
            replicas=False,
            known=self._known,
            space=request.space if request.keeps_less else PLAIN,
            plain=None if self._plain is None else self._plain.profile,
            pins=request.pins,
            counts=request.cluster_at(self._devices).level_counts,
        )

    def within_machine(self, devices: int) -> Mesh:
        """Return the mesh of the devices of a stage on one machine."""
        within = min(devices, self.parts.links.machine)
        return priced_stage(self._request, self._devices, within)[1]

    def _searched(self, problem: Problem, _: AnnotatedGraph) -> Frontier:
        """Return the strategies of stages of one size. All these searches share the time limit."""
        seconds = self._request.search_seconds
        if seconds is not None:
            sizes = [size for size in self.sizes if size > 1 or self._request.keeps_less]
            seconds /= len(self._microbatches) * max(1, len(sizes))
        gap = _STAGE_GAP if DEFAULT_LIMITS.can_bound(problem) else _SMALL_STAGE_GAP
        with Watch(seconds=seconds) as watch:
            frontier = frontier_tracking(problem, epsilon=gap, limits=_BOUNDED)
        self.ended_by = watch.ended_by or self.ended_by
        return frontier

    @property
    def sizes(self) -> list[int]:
        """The numbers of devices that a stage may have: of a machine, or of whole machines."""
        return self.parts.stage_sizes(self._stages)

    @cached_property
    def block(self) -> Int64Array:
        """int64[components]: the block of each component."""
        if self._given_block is not None:
            return self._given_block
        costs, fewest = self.parts.costs, self._stages[0]
        if fewest > len(costs.atoms):
            raise GraphError(
                "each stage of a pipeline has at least one operator that depends on the batch. Got "
                f"{fewest} stages of {len(costs.atoms)} operators; ask for fewer stages."
            )
        dag = costs.dag(max(1, costs.growth.examples // max(self._microbatches)))
        return partition(dag, int(dag.memory.sum()) + 1, max(BLOCKS, fewest)).of
