"""The pipelines of a request on some devices: blocks, prices of stages, and their frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import GraphError, InfeasibleError
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.blocks.partition import BLOCKS, partition
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.frontier import Counts, pipeline_frontier, stage_sizes
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.pipeline.stages.points import Profile, StagePoints
from tensoropt.planner.meshes import meshes_of
from tensoropt.planner.request import Request
from tensoropt.planner.searches.step_parts import StepParts
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PLAIN
from tensoropt.problem.model import Problem
from tensoropt.search.find import frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.pareto.frontier import EndedBy, Frontier
from tensoropt.search.watch import Watch
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign, assign_forward
from tensoropt.transformations.staged.schedule import SCHEDULES, Schedule
from tensoropt.transformations.staged.staged import staged

__all__ = ["PipelineSearch"]

_GAP = 0.01  # of frontiers of pipelines, for the same prices of stages
_STAGE_GAP = 0.05  # of a stage's own frontier
_SMALL_STAGE_GAP = 0.01
"""The same of problems of few cells, which an exact search would take 50 times as long for: it
finds thousands of points, of which a stage has a dozen."""
_BOUNDED = replace(DEFAULT_LIMITS, bounded_cells=0)
_BOUND_GAP = 0.02  # of what pipelines take at least
_REPLICATED = 1.25  # by how much splits of stages are faster than replicas, where they are much
_MOST_PROMISING = 3  # numbers of microbatches that are looked at where a time is to be undercut
_ALL_SIZES = 8  # devices of a machine up to which one of so many stages may have any number
_NO_LIMIT = 2**62
"""Bytes: what does not fit is on a plan's frontier, too."""


@dataclass(frozen=True, slots=True)
class _Promising:
    """Pipelines to look at.

    Attributes:
        microbatches: how many.
        sizes: numbers of devices of their stages.
        bound: nanoseconds that they take at least.
    """

    microbatches: tuple[int, ...]
    sizes: frozenset[int]
    bound: float


class PipelineSearch:
    """Pipelines of the step of a request.

    Args:
        request: the step.
        devices: how many, all of which are used.
        stages: the fewest, at least two, and the most of them.
        microbatches: how many, each of which divides the batch.
        within: bytes of a device, and nanoseconds of a step (or None), which a pipeline is to
            undercut, the faster the better; None for all of the frontier.
        plain: the same search of stages that keep all for the backward pass, where those of the
            request may keep less: a stage has its strategies, too.
        parts: of the request's step, if they are known.
        block: int64[components], the block of each; by default balanced ones are made.
        known: strategies of stages that stand for searches, see `SplitProfile`.
        like: a search of the same step, devices and microbatches, whose searches of stages count.

    Attributes:
        ended_by: what has ended a search of stages' strategies, if it did not end by itself.
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
        self._parts, self._given, self._known = parts, block, known
        self._cuts: dict[int, BatchCut] = {}
        self.ended_by: EndedBy = ""

    @cached_property
    def frontier(self) -> tuple[Pipeline, ...]:
        """Pipelines that no other beats, whether they fit the memory or not, by ascending memory.

        Where a time is to be undercut those of promising numbers are, and the fastest counts.

        Raises:
            InfeasibleError: if there is none, without limits.
        """
        epsilon = max(_GAP, self._request.epsilon)
        found: tuple[Pipeline, ...] = ()
        every = [_Promising(self._microbatches, frozenset(self.sizes), 0)]
        if self._within is not None and self._within[1] is not None:
            every = self._promising()
        for each in every:
            if found and each.bound >= found[-1].time:
                continue
            try:
                found = pipeline_frontier(
                    self.problem(self.profile),
                    self._schedules,
                    sizes=sorted(each.sizes),
                    epsilon=epsilon,
                    known=found,
                    counts=Counts(self._stages, each.microbatches),
                )
            except InfeasibleError:
                if self._within is None:
                    raise
        return found

    @property
    def _schedules(self) -> tuple[Schedule, ...]:
        """Those that are searched, by default all; of several the first takes least."""
        wanted = self._request.pipeline
        return SCHEDULES if wanted is None else wanted.schedules

    def problem(self, profile: Profile, margin: float = 1.0) -> PipelineProblem:
        """What is searched, with a margin of the time that is to be undercut."""
        parts = self.parts
        memory, time = (_NO_LIMIT, None) if self._within is None else self._within
        time = None if time is None else round(margin * time)
        return PipelineProblem(
            self.blocks, profile, parts.links, parts.machines, self.examples, memory, time
        )

    def _promising(self) -> list[_Promising]:
        """What to look at where a time is to be undercut, and in which order.

        A number of microbatches is passed over where stages whose devices share their work evenly,
        with no sums or resharding, are too slow. That of the fastest replicated stages comes first,
        the others by this bound. Few are looked at, with as many devices in a stage as such
        pipelines have.
        """
        replicated = self.profile.replicated

        def even(first: int, last: int, devices: int, *others: int) -> StagePoints | None:
            alone = replicated(first, last, 1, *others)
            return None if alone is None else StagePoints(alone.values // devices)

        found: list[tuple[float, _Promising]] = []
        for count in self._microbatches:
            least = self._fastest(even, count)
            if least is None:
                continue
            usual = self._fastest(replicated, count, _REPLICATED)
            pipelines = [least] if usual is None else [least, usual]
            sizes = frozenset(stage.devices for each in pipelines for stage in each.stages)
            bound = least.time / (1 + _BOUND_GAP)
            each = _Promising((count,), sizes | {1}, bound)
            found.append((inf if usual is None else usual.time, each))
        found.sort(key=lambda each: (each[0], each[1].bound))
        others = sorted((each for _, each in found[1:]), key=lambda each: each.bound)
        return [*(each for _, each in found[:1]), *others[: _MOST_PROMISING - 1]]

    def _fastest(self, profile: Profile, count: int, margin: float = 1.0) -> Pipeline | None:
        """Of so many microbatches, if it is within the limits, with a margin of time."""
        counts = Counts(self._stages, (count,))
        problem = self.problem(profile, margin)
        with suppress(InfeasibleError):
            return pipeline_frontier(
                problem, self._schedules[:1], sizes=self.sizes, epsilon=_BOUND_GAP, counts=counts
            )[-1]
        return None

    @cached_property
    def parts(self) -> StepParts:
        """The components of the step."""
        return self._parts or StepParts.of(self._request, self._devices)

    @property
    def blocks(self) -> int:
        """Of how many blocks stages are made."""
        return int(self.block.max()) + 1

    @property
    def examples(self) -> int:
        """Of a batch."""
        return self.parts.costs.growth.examples

    @property
    def step_nanoseconds(self) -> int:
        """What a step takes besides the pipeline's time."""
        return self.parts.cost.step_nanoseconds()

    def sending_nanoseconds(self, pipeline: Pipeline) -> int:
        """What the stage that sends most takes for it, in a step."""
        count, copies, most = pipeline.microbatches, pipeline.copies, 0
        examples = self.examples // copies // count
        for stage in pipeline.stages:
            points = self.profile(stage.first, stage.last, stage.devices, examples, copies)
            assert points is not None, "the stage's"
            computing = int(points.values[stage.point, :2].sum())
            computing += stage.recompute * int(points.values[stage.point, 0])
            most = max(most, count * (stage.forward + stage.backward - computing))
        return most

    def strategies_of(self, pipeline: Pipeline) -> dict[tuple[int, int], Int64Array]:
        """The strategies that the searches for a pipeline's stages found, see `SplitProfile`."""
        examples = self.examples // pipeline.copies // pipeline.microbatches
        keys = [self.profile.searched_for(stage, examples) for stage in pipeline.stages]
        return {key: self.profile.strategies_for(key) for key in keys if key is not None}

    def keeps_less(self, pipeline: Pipeline) -> bool:
        """Whether some operator of a pipeline keeps less for the backward pass."""
        examples = self.examples // pipeline.copies // pipeline.microbatches
        for stage in pipeline.stages:
            costs, chosen = self.profile.strategy(stage, examples, pipeline.copies)
            for group, number in zip(costs.annotated.choices, chosen.tolist(), strict=True):
                if number >= len(group.options) // len(group.options.kept):
                    return True
        return False

    def cut(self, microbatches: int) -> BatchCut:
        """How the step falls into microbatches."""
        if microbatches not in self._cuts:
            request = self._request
            found = cut_along_batch(request.graph, request.batch_placeholders, microbatches)
            self._cuts[microbatches] = found
        return self._cuts[microbatches]

    def stage_of(self, pipeline: Pipeline) -> Mapping[str, int]:
        """The stage of each operator of the step, `SHARED` for what every stage has.

        Raises:
            GraphError: if the step cannot be executed by these stages.
        """
        ends = [stage.last for stage in pipeline.stages]
        return self.stages_by_blocks(ends, pipeline.microbatches, pipeline.schedule)

    def stages_by_blocks(
        self, ends: Sequence[int], microbatches: int = 1, schedule: Schedule = "side_by_side"
    ) -> Mapping[str, int]:
        """`stage_of` a pipeline, by the last block of each stage."""
        cut = self.cut(microbatches)
        planned = {
            atom.operator: next(n for n, end in enumerate(ends) if block <= end)
            for atom, block in zip(self.parts.costs.atoms.atoms, self.block.tolist(), strict=True)
        }
        passes = assign_forward(cut, planned, len(ends) - 1)
        staged(cut, passes, self._request.roots, schedule)
        return {**assign(cut, passes), **passes}

    @cached_property
    def profile(self) -> SplitProfile:
        """What stages cost."""
        request, parts = self._request, self.parts
        replicated = ReplicatedProfile(parts.costs, self.block, parts.cost, parts.links)
        if self._like is not None:
            return self._like.profile.of_blocks(self.block, replicated)
        return SplitProfile(
            parts.costs,
            request.reads,
            request.batch_placeholders,
            self.block,
            self.priced,
            parts.links,
            self._devices,
            replicated,
            self._searched,
            replicas=False,
            known=self._known,
            space=request.space if request.keeps_less else PLAIN,
            plain=None if self._plain is None else self._plain.profile,
        )

    def priced(self, devices: int) -> tuple[ClusterCostModel, Mesh]:
        """The prices and the mesh of so many devices of a machine."""
        cluster = self._request.cluster_at(self._devices)
        mesh = meshes_of(self._request.graph, cluster, devices)[0].mesh
        return self._request.cost_model(self._devices, mesh), mesh

    def within_machine(self, devices: int) -> Mesh:
        """The devices that a stage of so many has of a machine."""
        return self.priced(min(devices, self.parts.links.machine))[1]

    def _searched(self, problem: Problem, _: AnnotatedGraph) -> Frontier:
        """The strategies of stages of one size: all such searches share the request's seconds."""
        seconds = self._request.search_seconds
        if seconds is not None:
            sizes = [size for size in self.sizes if size > 1 or self._request.keeps_less]
            seconds /= len(self._microbatches) * max(1, len(sizes))
        gap = _STAGE_GAP if DEFAULT_LIMITS.can_bound(problem) else _SMALL_STAGE_GAP
        with Watch(seconds=seconds) as watch:
            found = frontier_tracking(problem, epsilon=gap, limits=_BOUNDED)
        self.ended_by = watch.ended_by or self.ended_by
        return found

    @property
    def sizes(self) -> list[int]:
        """Numbers of devices that a stage may have: of a machine, or of whole machines."""
        machine, (fewest, most) = self.parts.links.machine, self._stages
        sizes = set(stage_sizes(machine, self.parts.machines))
        if fewest == most and machine <= _ALL_SIZES:
            sizes.update(range(1, machine + 1))
        return sorted(each for each in sizes if each <= self._devices - fewest + 1)

    @cached_property
    def block(self) -> Int64Array:
        """int64[components]: the block of each."""
        if self._given is not None:
            return self._given
        costs, fewest = self.parts.costs, self._stages[0]
        if fewest > len(costs.atoms):
            raise GraphError(
                "a stage of a pipeline has at least one operator that computes something of the "
                f"batch. Got {fewest} stages of {len(costs.atoms)} operators; ask for fewer stages."
            )
        dag = costs.dag(max(1, costs.growth.examples // max(self._microbatches)))
        return partition(dag, int(dag.memory.sum()) + 1, max(BLOCKS, fewest)).of
