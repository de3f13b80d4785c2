"""A request for strategies: a training step, its devices, and how to search."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.machine_profile import Profile
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.graph.operator import Graph
from tensoropt.parallel.buckets import Compression
from tensoropt.parallel.choices.joined import joined_units
from tensoropt.parallel.choices.pins import Pins
from tensoropt.parallel.choices.uneven import extents_in_proportion
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh, Shares, Units
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.planner.meshes import cluster_on, meshes_of
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.search.multilevel.refinement import Refinement
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.rewritten.application import Rewrite, reads_of
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule

if TYPE_CHECKING:  # the import takes time, which a start without a search should not spend
    from tensoropt.problem.from_graph import GraphProblem, ProblemBuilder

__all__ = ["Budget", "DryRunPeak", "PipelineNumbers", "Request", "StagePeak"]

_SPEED = 1000  # of the fastest device, in whole numbers

DryRunPeak = Callable[
    [Mesh, Mapping[str, Configuration], PlanSteps, int, Sequence[Rewrite]], Peak | str
]
"""Returns the peak memory of a step that is emitted but not run; a reason if it cannot be emitted.

Arguments: the devices, each operator's configuration, the planner of reshardings, the number of
microbatches, and the substitutions in the step.
"""

StagePeak = Callable[[Plan, int], Peak | str]
"""Returns the peak memory of one stage of a plan, from a dry run; a reason if it cannot be emitted.

Arguments: the plan, and the number of the stage.
"""


@dataclass(frozen=True, slots=True)
class PipelineNumbers:
    """The pipelines that a request allows.

    Attributes:
        stages: the number of stages, at least 2; None if the planner chooses, and may choose a
            step without stages.
        microbatches: the number of microbatches; None if the planner chooses.
        is_asked: whether the script asks for stages. If it does not, they are searched only if this
            is quick, and no error says what excludes them.
        schedules: the schedules that are searched.
    """

    stages: int | None
    microbatches: int | None = None
    is_asked: bool = True
    schedules: tuple[Schedule, ...] = SCHEDULES


@dataclass(frozen=True, slots=True)
class Budget:
    """The price of devices, and the deadline of "mini_cost".

    Attributes:
        device_hour_cost: the price of one device for an hour, in any currency; None for that of the
            cluster.
        max_step_seconds: the longest step that meets the deadline; None for no deadline.
        parallelism: the numbers of devices among which "mini_cost" chooses.
    """

    device_hour_cost: float | None = None
    max_step_seconds: float | None = None
    parallelism: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A training step, its devices, and how to search for its strategies.

    Attributes:
        graph: one training step, shapes bound; its batch normalisations follow ``batch_norm``.
        cluster_at: returns the cluster for a number of devices. (Ranks on one host share cores.)
        devices: the number of devices; for ``mini_parallelism`` the most.
        roots: the operators that the step runs.
        shapes: the shape of each placeholder.
        batch_placeholders: the placeholders that are loaded data parallel.
        memory_limit_bytes: the memory of one device; None for that of the cluster.
        profile_at: returns the profile measured with a number of devices; None if there is none.
        reads: the tensors of the forward pass that the backward pass reads.
        algorithm: the name of the solver, see `tensoropt.search.solvers`.
        space: which tensors may be kept for the backward pass, and how; see
            `tensoropt.problem.edges.tensor_reuse`.
        epsilon: the gap that a frontier may have.
        closes: whether a search without an epsilon goes on to `SearchLimits.closing_gap`. If not,
            it ends at the approximate gap, unless an exact search is quick.
        search_seconds: the time after which a search ends with its best result; None for no limit.
        steps: the steps of the job. A search ends when all steps together can no longer win the
            time that it has taken. None if ``search_seconds`` alone ends a search.
        dry_run_peak: returns the peak memory of a strategy from a dry run; if None, the peak is
            estimated.
        stage_peak: returns the peak memory of a plan's stage from a dry run; if None, the peak is
            unknown.
        saves_dry_runs: whether a plan far below the memory limit gets an estimated peak and no dry
            run. Its step is then emitted for the first time at the start of the job.
        batch_norm: over which examples batch normalisation takes its statistics, see
            `tensoropt.graph.batch_norm`.
        compression: how gradients travel between machines; None for as they are.
        fixed: operators whose splits are decided, by name, on the request's last mesh.
        pins: dimensions of operators that the script divides by hand.
        cut: how the step is cut into microbatches. None for the batch at once, and for a pipeline,
            whose search makes its own cuts.
        pipeline: the pipelines that are allowed; None for none.
        rewrite: whether rewritten graphs are searched; None if bounds decide.
        keep_less: whether strategies that keep fewer tensors than ``space`` may be searched, too,
            if memory is short.
        accumulate: whether several microbatches may be searched if memory is short.
        rewrites: the substitutions that turned the script's graph into this one.
        script_digest: the digest of the script's graph, if it is another one than ``graph``.
        budget: the price of devices, and the deadline.
        results: the results of searches that do not depend on the memory limit, for requests that
            differ in their memory limit alone; None if each request searches anew.
        shares: the speeds to which pieces are in proportion on ``devices``; None if they are even.
        units: the units of extents on ``devices``, see `tensoropt.parallel.mesh.Mesh`; None for
            those of the graph (`tensoropt.parallel.choices.joined`).
        problems: the problems of this request that are built, by their numbers of devices. A
            request that is made from this one starts without them.
        builders: the builders of problems whose nodes alone are priced so far, in the same way.
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
    algorithm: str = "ft"
    space: Space = PLAIN
    epsilon: float = 0.0
    closes: bool = True
    search_seconds: float | None = None
    steps: int | None = None
    dry_run_peak: DryRunPeak | None = None
    stage_peak: StagePeak | None = None
    saves_dry_runs: bool = False
    batch_norm: BatchNorm = "global"
    compression: Compression | None = None
    fixed: Mapping[str, Configuration] = field(default_factory=dict)
    pins: Pins = field(default_factory=Pins)
    cut: BatchCut | None = None
    pipeline: PipelineNumbers | None = None
    rewrite: bool | None = False
    keep_less: bool = False
    accumulate: bool = False
    rewrites: tuple[Rewrite, ...] = ()
    script_digest: str = ""
    budget: Budget = Budget()
    results: dict[Hashable, Any] | None = field(default=None, repr=False)
    shares: Shares | None = None
    units: Units | None = None
    problems: dict[int, GraphProblem] = field(default_factory=dict, init=False, repr=False)
    builders: dict[int, ProblemBuilder] = field(default_factory=dict, init=False, repr=False)

    @property
    def graph_digest(self) -> str:
        """The digest of the script's graph."""
        return self.script_digest or self.graph.digest()

    def of_rewritten(self, rewrites: tuple[Rewrite, ...], graph: Graph) -> Request:
        """Return the request for the step after substitutions, without further rewriting.

        Raises:
            GraphError: if the rewritten step cannot be cut into the request's microbatches.
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
        """Whether strategies may keep fewer tensors than the backward pass reads."""
        return self.space.reuse or self.space.recompute

    @property
    def microbatches(self) -> int:
        """The number of microbatches of a step; 1 for the batch at once."""
        return 1 if self.cut is None else self.cut.microbatches

    @property
    def repeats(self) -> Mapping[str, int]:
        """How often each operator runs that runs once for every microbatch."""
        indices = {} if self.cut is None else self.cut.indices
        return {name: self.microbatches for name, index in indices.items() if index is not None}

    def in_microbatches(self, microbatches: int) -> Request:
        """Return the request for the step in a number of microbatches.

        Raises:
            GraphError: if the step cannot be cut into them.
        """
        cut = cut_along_batch(self.graph, self.batch_placeholders, microbatches)
        cut.check()
        shares, examples = self.shares, (self.examples or 0) // microbatches
        if shares is not None and examples > 1:
            extents = tuple(sorted({*shares.extents, examples}))
            shares = replace(shares, extents=extents)
        return replace(self, cut=cut, shares=shares)

    def worth_seconds(self, step_nanoseconds: int, gain: float) -> float:
        """Return the seconds that the job wins if its steps become shorter by the share ``gain``.

        The result is infinite if the number of steps is unknown.
        """
        return inf if self.steps is None else self.steps * step_nanoseconds * gain / 1e9

    def meshes(self, devices: int) -> tuple[Refinement, ...]:
        """Return the meshes that are searched, the coarsest first. For few devices it is one.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        meshes = meshes_of(self.graph, self.cluster_at(devices), devices)
        shares, units = self.shares, self._units() if devices == self.devices else ()
        if shares is not None and len(shares.speeds) != devices:
            shares = None
        if shares is None and not units:
            return meshes
        return tuple(
            replace(each, mesh=replace(each.mesh, shares=shares, units=units)) for each in meshes
        )

    def _units(self) -> Units:
        """Return the units of extents. With them, an extent falls into as many pieces as its batch
        has examples, which may be fewer than the script pins."""
        if self.units is not None:
            return self.units
        if self.pins.of_operator and (self.examples or 0) < self.devices * self.microbatches:
            return ()
        return joined_units(
            self.graph,
            self.devices,
            self.batch_placeholders,
            self.microbatches,
            in_proportion=self.shares is not None,
        )

    def in_proportion(self) -> Request | None:
        """Return the request for pieces in proportion to speeds; None if no device is slower."""
        speeds = self.cluster_at(self.devices).speeds(self.devices)
        if len(set(speeds)) == 1:
            return None
        whole = tuple(max(1, round(_SPEED * speed / max(speeds))) for speed in speeds)
        extents = extents_in_proportion(self.graph, self.devices, self.batch_placeholders)
        return replace(self, shares=Shares(whole, tuple(sorted(extents))), units=None)

    def evenly_joined(self) -> Request | None:
        """Return the request without units of joined extents; None if there are none, or if the
        largest piece of the batch is hardly larger than an even part of it."""
        examples = self.examples or 0
        if self.units is not None or not self._units():
            return None
        computed = -(-examples // self.devices) * self.devices
        return replace(self, units=()) if computed > (1 + SAME_TIME) * examples else None

    def cost_model(
        self, devices: int, mesh: Mesh | None = None, speed: float | None = None
    ) -> ClusterCostModel:
        """Return the cost model for a number of devices, with measured times if there is a profile.

        Args:
            devices: the number of devices.
            mesh: one of `meshes`; the last of them if None.
            speed: the speed of all devices; None for that of each. Stages on fewer devices are as
                slow as the slowest device then.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        mesh = self.meshes(devices)[-1].mesh if mesh is None else mesh
        cluster = cluster_on(self.cluster_at(devices), mesh)
        if speed is not None:
            cluster = cluster.alike(devices, speed)
        elif mesh.size < devices:  # a stage, on devices that are not known yet
            cluster = cluster.of_slowest(devices)
        profile = self.profile_at(devices)
        if profile is None:
            return ClusterCostModel(cluster, mesh, "execution")
        times = profile.operator_times(cluster.device)
        return MeasuredCostModel(cluster, mesh, times, "execution")

    def shared_cores(self, devices: int) -> int | None:
        """Return the cores of a machine whose ranks share them.

        The result is None if there are enough cores for all ranks, if the profile was measured on
        several machines, or if there is no profile.
        """
        profile = self.profile_at(devices)
        if profile is None or len(profile.setting.ranks_per_host) > 1:
            return None
        cores = profile.setting.cores_per_host
        return cores if cores < devices else None

    @property
    def examples(self) -> int | None:
        """The examples of a batch; None if the step is fed no batch."""
        fed = [self.shapes[name] for name in self.batch_placeholders]
        return min((shape[0] for shape in fed if shape), default=None)

    def device_hour_cost(self, devices: int) -> float | None:
        """Return the price of a device-hour, of the budget or of the cluster; None if unknown."""
        cost = self.budget.device_hour_cost
        return self.cluster_at(devices).device_hour_cost if cost is None else cost

    def strategy(self, problem: GraphProblem, numbers: Sequence[int]) -> Strategy:
        """Return a strategy of this request, for the step's graph or that of one microbatch.

        Args:
            problem: a problem of this request.
            numbers: the number of each node's configuration.
        """
        configurations = problem.configurations(numbers)
        return Strategy(problem.graph, problem.mesh, configurations, self.batch_placeholders)

    def usable_bytes(self, devices: int) -> int:
        """Return the bytes of a device that a plan may use: the limit over the safety factor."""
        return int(self.limit_bytes(devices) / self.cluster_at(devices).safety_factor)

    def limit_bytes(self, devices: int) -> int:
        """Return the memory limit of one device; of that with the least if they differ."""
        return min(self.limits(devices))

    def limits(self, devices: int) -> tuple[int, ...]:
        """Return the memory limit of each device of a job.

        It is the request's limit or, if that is less, the memory that the cluster gives for the
        kind of the device.
        """
        return self.cluster_at(devices).memories(devices, self.memory_limit_bytes)

    def counted_bytes(self, bytes_: int, devices: Sequence[int]) -> int:
        """Return the bytes of some of the request's devices as the limit of one device counts them.

        The share of their limit that is used is that share of `limit_bytes`.
        """
        limits = self.limits(self.devices)
        return -(-bytes_ * min(limits) // min(limits[device] for device in devices))
