"""A request for strategies: a training step, its devices, and how to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.machine_profile import Profile
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.graph.operator import Graph
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.plan import Plan
from tensoropt.planner.meshes import cluster_on, meshes_of
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.search.multilevel.refinement import Refinement
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.rewritten.application import Rewrite, reads_of
from tensoropt.transformations.staged.schedule import SCHEDULES, Schedule

if TYPE_CHECKING:  # importing it takes a start that searches nothing a while
    from tensoropt.problem.from_graph import GraphProblem

__all__ = ["Budget", "DryRunPeak", "PipelineNumbers", "Request", "StagePeak"]

DryRunPeak = Callable[
    [Mesh, Mapping[str, Configuration], PlanSteps, int, Sequence[Rewrite]], Peak | str
]
"""The peak memory of a step that is emitted but not run, or why it cannot be emitted.

Arguments: the devices, each operator's configuration, what plans reshardings, the number of
microbatches, and substitutions in the step.
"""

StagePeak = Callable[[Plan, int], Peak | str]
"""The peak memory of a stage of a plan, by its number, likewise."""


@dataclass(frozen=True, slots=True)
class PipelineNumbers:
    """A pipeline that is asked for.

    Attributes:
        stages: how many, at least 2; None for those of the fastest step, if any.
        microbatches: how many; None for those of the fastest step.
        is_asked: whether by the script; else they are looked for where that is quick, and what
            excludes them is not told.
        schedules: the orders of microbatches that are searched.
    """

    stages: int | None
    microbatches: int | None = None
    is_asked: bool = True
    schedules: tuple[Schedule, ...] = SCHEDULES


@dataclass(frozen=True, slots=True)
class Budget:
    """The price of devices, and the deadline of "mini_cost".

    Attributes:
        device_hour_cost: of one device, in any currency; None for the cluster's.
        max_step_seconds: the longest step that meets the deadline; None for no deadline.
        parallelism: the numbers of devices among which "mini_cost" chooses.
    """

    device_hour_cost: float | None = None
    max_step_seconds: float | None = None
    parallelism: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A training step, its devices, and how to search.

    Attributes:
        graph: one training step, shapes bound; batch normalisations as ``batch_norm`` says.
        cluster_at: where it runs, by number of devices (ranks on one host share its cores).
        devices: number of devices to use, for ``mini_parallelism`` at most.
        roots: the operators that the step runs.
        shapes: shape of each placeholder.
        batch_placeholders: placeholders loaded data parallel.
        memory_limit_bytes: memory of one device; None for the cluster's.
        profile_at: what was measured there, by number of devices; None where nothing was.
        reads: what the backward pass reads of the forward pass.
        memory_model: name of the memory model, see `tensoropt.cost.memory`.
        algorithm: name of the solver, see `tensoropt.search.solvers`.
        space: what may be kept for the backward pass, see `tensoropt.problem.edges.tensor_reuse`.
        epsilon: the gap that a frontier may have.
        search_seconds: after which a search ends with the best that it has; None for no limit.
        steps: that the job makes: a search ends where what it can still win in them takes less time
            than it has taken. None where ``search_seconds`` alone ends it.
        dry_run_peak: the peak memory of a strategy from a dry run; without it that is estimated.
        stage_peak: the peak memory of a plan's stage from a dry run; without it that is unknown.
        saves_dry_runs: whether a plan far below the memory limit has an estimated peak and no dry
            run. The start of the job then is the first to emit its step.
        batch_norm: whose statistics batch normalisation takes, see `tensoropt.graph.batch_norm`.
        cut: how the step falls into microbatches; None where it is computed at once, and in a
            pipeline, whose cuts are its search's.
        pipeline: of which stages; None for none.
        rewrite: whether rewritten graphs are searched, too; None where they can pay.
        keep_less: whether strategies that keep less for the backward pass may be searched beside
            those of ``space``, where memory is short.
        accumulate: whether several microbatches may be, where memory is short.
        rewrites: substitutions that have made the graph of the script's.
        script_digest: of the script's graph, where that is not this one.
        budget: the price of devices, and the deadline.
    """

    graph: Graph
    cluster_at: Callable[[int], Cluster]
    devices: int
    roots: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    batch_placeholders: frozenset[str]
    memory_limit_bytes: int | None = None
    profile_at: Callable[[int], Profile | None] = lambda _: None
    reads: BackwardReads = field(default_factory=BackwardReads)
    memory_model: str = "execution"
    algorithm: str = "ft"
    space: Space = PLAIN
    epsilon: float = 0.0
    search_seconds: float | None = None
    steps: int | None = None
    dry_run_peak: DryRunPeak | None = None
    stage_peak: StagePeak | None = None
    saves_dry_runs: bool = False
    batch_norm: BatchNorm = "global"
    cut: BatchCut | None = None
    pipeline: PipelineNumbers | None = None
    rewrite: bool | None = False
    keep_less: bool = False
    accumulate: bool = False
    rewrites: tuple[Rewrite, ...] = ()
    script_digest: str = ""
    budget: Budget = Budget()

    @property
    def graph_digest(self) -> str:
        """Of the script's graph."""
        return self.script_digest or self.graph.digest()

    def of_rewritten(self, rewrites: tuple[Rewrite, ...], graph: Graph) -> Request:
        """The request for a step after substitutions; of no others.

        Raises:
            GraphError: if the step cannot be computed in as many microbatches as this one.
        """
        rewritten = replace(
            self,
            graph=graph,
            rewrites=rewrites,
            script_digest=self.graph_digest,
            reads=reads_of(graph, self.reads),
            rewrite=False,
            cut=None,
        )
        return rewritten if self.cut is None else rewritten.in_microbatches(self.microbatches)

    @property
    def substitutions(self) -> tuple[str, ...]:
        """The names of the substitutions that made the graph, each once."""
        return tuple(dict.fromkeys(rewrite.substitution for rewrite in self.rewrites))

    @property
    def keeps_less(self) -> bool:
        """Whether strategies may keep less for the backward pass than all that it reads."""
        return self.space.reuse or self.space.recompute

    @property
    def microbatches(self) -> int:
        """In how many parts of the batch the gradients of a step are computed."""
        return 1 if self.cut is None else self.cut.microbatches

    @property
    def repeats(self) -> Mapping[str, int]:
        """How often operators run that run for each of several microbatches."""
        indices = {} if self.cut is None else self.cut.indices
        return {name: self.microbatches for name, index in indices.items() if index is not None}

    def in_microbatches(self, microbatches: int) -> Request:
        """The request for a step that computes its gradients in parts.

        Raises:
            GraphError: if the step cannot be computed so.
        """
        cut = cut_along_batch(self.graph, self.batch_placeholders, microbatches)
        cut.check()
        return replace(self, cut=cut)

    def worth_seconds(self, step_nanoseconds: int, gain: float) -> float:
        """Seconds that the job wins where its steps become shorter by a share."""
        return inf if self.steps is None else self.steps * step_nanoseconds * gain / 1e9

    def meshes(self, devices: int) -> tuple[Refinement, ...]:
        """The meshes that are searched, coarsest first: one but for many devices.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        return meshes_of(self.graph, self.cluster_at(devices), devices)

    def cost_model(self, devices: int, mesh: Mesh | None = None) -> ClusterCostModel:
        """What things cost on so many devices: as measured where there is a profile.

        Args:
            devices: how many.
            mesh: one of `meshes`, the last of them if None.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        mesh = self.meshes(devices)[-1].mesh if mesh is None else mesh
        cluster = cluster_on(self.cluster_at(devices), mesh)
        profile = self.profile_at(devices)
        if profile is None:
            return ClusterCostModel(cluster, mesh, self.memory_model)
        times = profile.operator_times(cluster.device)
        return MeasuredCostModel(cluster, mesh, times, self.memory_model)

    def shared_cores(self, devices: int) -> int | None:
        """The cores of the machine, where a profile was measured by more ranks than these on one;
        None where each has its own, or nothing is known."""
        profile = self.profile_at(devices)
        if profile is None or len(profile.setting.ranks_per_host) > 1:
            return None
        cores = profile.setting.cores_per_host
        return cores if cores < devices else None

    @property
    def examples(self) -> int | None:
        """The examples of a batch; None where the step is fed no batch."""
        fed = [self.shapes[name] for name in self.batch_placeholders]
        return min((shape[0] for shape in fed if shape), default=None)

    def device_hour_cost(self, devices: int) -> float | None:
        """The cost of a device-hour: the budget's, or the cluster's; None where it is unknown."""
        cost = self.budget.device_hour_cost
        return self.cluster_at(devices).device_hour_cost if cost is None else cost

    def strategy(self, problem: GraphProblem, numbers: Sequence[int]) -> Strategy:
        """A strategy of a problem that was built for this, by its configurations' numbers; of the
        step's graph, or of one microbatch's."""
        configurations = problem.configurations(numbers)
        return Strategy(problem.graph, problem.mesh, configurations, self.batch_placeholders)

    def usable_bytes(self, devices: int) -> int:
        """Memory of one device that a plan may use: the limit divided by the safety factor."""
        return int(self.limit_bytes(devices) / self.cluster_at(devices).safety_factor)

    def limit_bytes(self, devices: int) -> int:
        """Memory of one device."""
        limit = self.memory_limit_bytes
        return self.cluster_at(devices).device.memory_bytes if limit is None else limit
