"""A plan: a chosen strategy with its predicted costs, for one graph and cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from tensoropt.converters import (
    Digest,
    MeshAxes,
    Natural,
    Number,
    Positive,
    Text,
    from_values,
    to_values,
)
from tensoropt.cost.cluster import MAY_LACK, Cluster
from tensoropt.errors import LayoutError, PlanError
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.json_files import digest_of, read_json, write_json
from tensoropt.parallel.buckets import Compression
from tensoropt.parallel.choices.fixed_dimension import FixedDimension
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh, Shares, Units
from tensoropt.plan.amounts import devices_of, mebibytes_of
from tensoropt.plan.compared_numbers import compared_with
from tensoropt.plan.details import Details
from tensoropt.plan.details.report_module import explaining_module, report_module
from tensoropt.plan.dry_run_bounds import ESTIMATE, SUM
from tensoropt.plan.operator_plan import OperatorPlan, StagePlan
from tensoropt.plan.point_peak import PointPeak, memory_and_time
from tensoropt.plan.recorded_resharding import ReshardingInFile
from tensoropt.plan.validation_result import Validation
from tensoropt.plan.ways import way
from tensoropt.signed_files import content_of
from tensoropt.transformations.rewritten.application import Rewrite
from tensoropt.transformations.staged.devices import devices_of_stage
from tensoropt.transformations.staged.order_of_passes import Schedule

__all__ = ["FEWER_DEVICES", "Plan"]

FEWER_DEVICES = frozenset({"mini_parallelism", "mini_cost"})
"""Options of `find_strategy` whose plans may leave devices of the job without work."""

_FILE = "a plan is a whole, readable JSON file"
_FILE_REMEDY = (
    "Give the path of a file that Plan.save or `tensoropt plan --output` wrote. Save the plan "
    "again if it was damaged."
)
_REMEDY = "Find the strategy again and save it; plans are not written by hand."
_SCHEMA = 16
_LEFT_OUT_IF_EMPTY = frozenset({"device_order", "fixed", "shares", "units"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy for one graph on one number of devices.

    Attributes:
        option: the option of `find_strategy`, such as "mini_time".
        devices: number of devices.
        mesh_axes: sizes of the mesh axes, slowest link first.
        cluster: the cluster that it was made for.
        graph_digest: SHA-256 of the graph that it was made for.
        roots: the operators that one step runs.
        shapes: global shape of each placeholder, by operator name.
        batch_placeholders: placeholders of which each device loads its slice.
        operators: one entry for each operator that computes.
        time_nanoseconds: the search's sum of times of one step (equation 3); see
            `executed_nanoseconds`.
        memory_bytes: predicted memory per device: the search's sum (equation 3).
        memory_limit_bytes: the memory limit, safety factor included; None for none.
        frontier: (memory_bytes, executed_nanoseconds) of every point of the frontier that it was
            chosen from, in the order of `points`. Some steps are interpolated between others. Data
            parallelism may be planned in place of the fastest point, see ``notes``.
        exact: whether the searches found every point of least sums.
        notes: sentences for the user.
        peak_bytes: predicted peak per device: the most memory allocated at once, temporary buffers
            included, when the step is followed operator by operator; None if it is unknown. For
            stages without a dry run it is the largest stage's sum.
        peak_is_estimated: whether ``peak_bytes`` is an estimate instead of a dry run's.
        algorithm: the solver that found it, "ft" for frontier tracking.
        validation: the candidates that were measured before it was adopted; None if none was.
        executed_nanoseconds: predicted time of one step as it is executed. A resharded tensor that
            several readers share is made once; the search counts it for each.
        network_nanoseconds: the part of it inside collectives, counted from the arrival of all
            ranks.
        epsilon: the gap that the user allowed, 0 for an exact frontier.
        within: the proven gap of the searches: for every strategy, they found some point of at most
            1 + ``within`` times its sums of memory and time; 0 if the frontier is exact, None if
            nothing is proven.
        reshardings: the collectives that its edges need. A resharding that is not listed is planned
            when it runs.
        batch_norm: the statistics of batch normalisation, see `tensoropt.graph.batch_norm`.
        compression: "bf16" if gradients of float32 are rounded on their way between machines; None
            if not.
        microbatches: number of parts of the batch whose gradients are computed one after another
            and added up.
        stages: the stages of a pipeline, on devices in order; empty if each device has its part of
            all operators. Configurations of a stage's operators are on the stage's mesh.
        copies: number of copies of a pipeline, each on machines of its own with its part of each
            microbatch. Copies are the outermost part of each stage's mesh.
        schedule: the order of a pipeline's passes, "1f1b" or "gpipe"; "side_by_side" if stages are
            branches that run at once; None without stages.
        rewrites: substitutions that a run makes in the script's graph, in their order.
        frontier_ways: for each point of the frontier the way to run the step, in a few words, such
            as "whole batch" or "2 stages, 8 microbatches"; empty for a strategy that is planned
            alone, such as data parallelism.
        looked_at: the ways to run the step that were searched, those that were not, and the
            reasons, in one line; empty for a strategy that is planned alone.
        point: the number of the plan among these points; None if it is none of them.
        frontier_peaks: the predicted peak of each point of the frontier, None where it is unknown;
            empty if none is known.
        fewer_devices: (devices, nanoseconds) for 1, 2, 4, ... devices: the predicted time of one
            step by data parallelism as it is executed, None if it does not fit the memory. Empty
            on one device.
        details: facts for people: moves of tensors, what holds memory.
        shares: the speeds of devices to which pieces are in proportion; None if they are even.
        units: the units of extents, see `tensoropt.parallel.mesh.Mesh`.
        fixed: the dimensions that the script, or the command line, divided by hand.
        device_order: the devices that stages take, one copy of the pipeline after the other; empty
            if stages take them in the order of their numbers.
    """

    option: str
    devices: Positive
    mesh_axes: MeshAxes
    cluster: Cluster
    graph_digest: Digest
    roots: tuple[str, ...]
    shapes: Mapping[str, tuple[Natural, ...]]
    batch_placeholders: tuple[str, ...]
    operators: tuple[OperatorPlan, ...]
    time_nanoseconds: Natural
    memory_bytes: Natural
    memory_limit_bytes: Natural | None
    frontier: tuple[tuple[Natural, Natural], ...]
    exact: bool
    executed_nanoseconds: Natural
    network_nanoseconds: Natural
    notes: tuple[str, ...] = ()
    peak_bytes: Natural | None = None
    algorithm: Text = "ft"
    validation: Validation | None = None
    epsilon: Annotated[Number, Ge(0)] = 0.0
    within: Annotated[Number, Ge(0)] | None = None
    reshardings: tuple[ReshardingInFile, ...] = ()
    batch_norm: BatchNorm = "global"
    compression: Compression | None = None
    microbatches: Positive = 1
    stages: tuple[StagePlan, ...] = ()
    schedule: Schedule | None = None
    copies: Positive = 1
    rewrites: tuple[Rewrite, ...] = ()
    frontier_ways: tuple[Text, ...] = ()
    looked_at: str = ""
    frontier_peaks: tuple[PointPeak | None, ...] = ()
    point: Natural | None = None
    fewer_devices: tuple[tuple[Natural, Natural | None], ...] = ()
    peak_is_estimated: bool = False
    details: Details = field(default_factory=Details)
    shares: Shares | None = None
    units: Units = ()
    fixed: tuple[FixedDimension, ...] = ()
    device_order: tuple[Natural, ...] = ()

    @property
    def mesh(self) -> Mesh:
        """The devices as mesh axes."""
        return Mesh(self.mesh_axes, self.shares, self.units)

    @property
    def predicted_step_seconds(self) -> float:
        """Predicted time of one step as it is executed, in seconds."""
        return self.executed_nanoseconds / 1e9

    @property
    def peak_margin(self) -> float:
        """Factor by which a step's real peak may exceed ``peak_bytes``: 1 after a dry run."""
        if not self.peak_is_estimated:
            return 1.0
        return SUM if self.stages else ESTIMATE

    @property
    def compared(self) -> str:
        """The comparison of the predicted step with fewer devices; empty if nothing is known."""
        return compared_with(self.devices, self.executed_nanoseconds, self.fewer_devices)

    @property
    def predicted_network_seconds(self) -> float:
        """`network_nanoseconds`, in seconds."""
        return self.network_nanoseconds / 1e9

    @property
    def configurations(self) -> dict[str, Configuration]:
        """Each operator's configuration, by name."""
        return {
            operator.name: Configuration(operator.splits, operator.kept)
            for operator in self.operators
        }

    def runs_on(self, devices: int) -> bool:
        """Whether a job of some devices can run it, on all of them or, by its option, on fewer."""
        return self.devices == devices or (self.option in FEWER_DEVICES and self.devices < devices)

    def runs_as(self, other: Plan) -> bool:
        """Whether another plan of the same step runs it in the same way."""
        this_step, other_step = (
            (
                plan.configurations,
                plan.microbatches,
                plan.rewrites,
                (plan.schedule, plan.copies, plan.shares, plan.units, plan.device_order),
                [(stage.mesh_axes, stage.operators, stage.recompute) for stage in plan.stages],
            )
            for plan in (self, other)
        )
        return this_step == other_step

    @property
    def stage_of(self) -> dict[str, int]:
        """The number of each operator's stage, by name; empty for a plan without stages."""
        return {name: n for n, stage in enumerate(self.stages) for name in stage.operators}

    def devices_of_stage(self, number: int) -> tuple[int, ...]:
        """The devices of a stage in the order of its mesh, see ``device_order``."""
        per_copy = [stage.mesh.size // self.copies for stage in self.stages]
        return devices_of_stage(number, per_copy, self.copies, self.device_order)

    @property
    def way(self) -> str:
        """The way in which the plan runs its step, in a few words."""
        return way(
            tuple(dict.fromkeys(rewrite.substitution for rewrite in self.rewrites)),
            self.microbatches,
            len(self.stages),
            self.schedule,
            keeps_less=any(operator.kept != "both" for operator in self.operators),
            in_proportion=self.shares is not None,
        )

    @property
    def bubble(self) -> float:
        """The predicted share of a step in which devices wait for other stages, on average."""
        if not self.stages:
            return 0.0
        step = self.predicted_step_seconds * 1e9 * self.devices
        busy = (s.mesh.size * s.busy_nanoseconds(self.microbatches) for s in self.stages)
        return max(0.0, 1 - sum(busy) / max(step, 1))

    def __str__(self) -> str:
        split, compared = sum(operator.is_split for operator in self.operators), self.compared
        by = "" if self.algorithm == "ft" else f" by {self.algorithm}"
        statistics = "" if self.batch_norm == "global" else f", batch_norm={self.batch_norm}"
        statistics += f", compression={self.compression}" if self.compression else ""
        parts = "" if self.microbatches == 1 else f", {self.microbatches} microbatches"
        stages = f"{len(self.stages)} stages, " if self.stages else ""
        rewrites = f", {len(self.rewrites)} substitutions" if self.rewrites else ""
        return (
            f"plan {self.option}{by} on {devices_of(self.devices)}: {stages}{split} of "
            f"{len(self.operators)} operators split, "
            f"{self.predicted_step_seconds * 1e3:.3f} ms a step (predicted), "
            f"{mebibytes_of(self.memory_bytes)} a device{parts}{statistics}{rewrites}"
            f"{compared and f'; {compared}'}"
        )

    @property
    def points(self) -> list[tuple[int, int]]:
        """Memory (the peak, or the sum where it is unknown) and step of the frontier's points."""
        return memory_and_time(self.frontier, self.frontier_peaks)

    def fits(self, memory_bytes: int, peak_bytes: int | None) -> bool:
        """Whether a point fits: its sum the limit, its peak, if that is known, the device."""
        limit = self.memory_limit_bytes
        return limit is None or (
            memory_bytes <= limit and (peak_bytes or 0) <= limit * self.cluster.safety_factor
        )

    def plot(self, picture: str = "overview", file: str | Path | None = None) -> Any:
        """Draw the plan with Matplotlib, which the extra ``plots`` installs.

        Args:
            picture: "frontier", "layers" (time by layer), "divisions" (what devices divide in each
                layer), "memory" (over the step), "schedule" (of a pipeline), or "overview" with
                all of them.
            file: a .png, .svg or .pdf file to write.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            OptionError: if there is no picture of this name, the file has another ending, or
                Matplotlib is not installed.
        """
        return report_module().plot(self, picture, file)

    def plot_frontier(self, file: str | Path | None = None) -> Any:
        """Draw the frontier with the plan, data parallelism and the limit of memory; see `plot`."""
        return self.plot("frontier", file)

    def explain(self, layer: str, seconds: float = 30.0) -> Any:
        """Price other divisions of a layer; see `tensoropt.planner.explain`.

        A StateError says that this process has not searched the plan, or runs it already.
        """
        return explaining_module().explained(self, layer, seconds)

    def _repr_html_(self) -> str:
        """The plan's summary and costliest layers, for a notebook."""
        html: str = report_module().html_of(self)
        return html

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values, with their digest."""
        values = to_values(self)
        del values["cluster"]
        for name in _LEFT_OUT_IF_EMPTY:
            if not getattr(self, name):
                del values[name]
        values = {"schema": _SCHEMA, **values, "cluster": self.cluster.to_json()}
        return {**values, "digest": digest_of(values)}

    @classmethod
    def from_json(cls, values: object, origin: str = "a plan") -> Plan:
        """The inverse of `to_json`.

        Raises:
            PlanError: if the schema is another one; naming the field that breaks the schema or
                contradicts another field; or if the digest does not match.
        """
        given = values if isinstance(values, dict) else {}
        version = given.get("schema", "none")
        if version != _SCHEMA:
            raise PlanError(
                f"this TensorOpt reads plans of schema {_SCHEMA}. Got {origin} of schema "
                f"{version}. Plan again with this version: `tensoropt plan SCRIPT --output FILE`, "
                "or find_strategy."
            )
        rule = f"a plan follows its schema. Got in {origin}"
        plan = from_values(cls, content_of(given), rule, _REMEDY, MAY_LACK | _LEFT_OUT_IF_EMPTY)
        if contradiction := plan._contradiction():
            raise PlanError(
                f"the fields of a plan agree. Got in {origin} {contradiction}. {_REMEDY}"
            )
        if given.get("digest") != digest_of(given):
            raise PlanError(
                f"a plan is as it was found. Got {origin}, which was changed afterwards. {_REMEDY}"
            )
        return plan

    def _contradiction(self) -> str:
        """A contradiction between fields, which a schema cannot express; empty if there is none."""
        order = [*range(self.devices)] if self.stages else []
        if self.device_order and sorted(self.device_order) != order:
            return f"device_order {list(self.device_order)} of {len(self.stages)} stages"
        try:
            devices = self.mesh.size
        except LayoutError as error:
            return f"shares or units of pieces: {error}"
        if devices != self.devices:
            return f"mesh axes {list(self.mesh_axes)} for {self.devices} devices"
        memories = dict(enumerate(memory for memory, _ in self.frontier))
        if self.point is not None and memories.get(self.point) != self.memory_bytes:
            return f"point {self.point} of {len(self.frontier)}, which is another strategy"
        if self.validation is not None:
            trials = self.validation.trials
            adopted = trials[self.validation.adopted : self.validation.adopted + 1]
            if [trial.time_nanoseconds for trial in adopted] != [self.executed_nanoseconds]:
                return "the validation of another plan"
        counts = [count or 0 for count, _ in self.fewer_devices]
        if counts != sorted({*counts} & {*range(1, self.devices)}):
            return f"times on fewer devices for {counts} in a plan for {self.devices}"
        if self.stages and (contradiction := self._stages_contradict()):
            return contradiction
        for name in ("frontier_ways", "frontier_peaks"):
            if (count := len(getattr(self, name))) not in (0, len(self.frontier)):
                return f"{count} {name} for {len(self.frontier)} points"
        if bool(self.stages) != (self.schedule is not None):
            return f"schedule {self.schedule!r} of {len(self.stages)} stages"
        stage_of, axes = self.stage_of, [len(stage.mesh_axes) for stage in self.stages]
        for operator in self.operators:
            most = axes[stage_of[operator.name]] if axes else len(self.mesh_axes)
            splits = f"splits {operator.splits} of {operator.name!r}"
            if len(operator.dimensions) != len(operator.splits):
                return f"{splits} in {len(operator.dimensions)} dimensions"
            try:
                Configuration(operator.splits)
            except LayoutError as error:
                return f"{splits}: {error}"
            if max((axis for axes in operator.splits for axis in axes), default=-1) >= most:
                return f"{splits} on {most} axes"
        return ""

    def _stages_contradict(self) -> str:
        """A contradiction between stages and other fields; empty if there is none."""
        sizes = [stage.mesh.size for stage in self.stages]
        if sum(sizes) != self.devices:
            return f"stages of {sizes} devices for {self.devices}"
        if any(size % self.copies for size in sizes):
            return f"stages of {sizes} devices in {self.copies} copies"
        counts = Counter(name for stage in self.stages for name in stage.operators)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            return f"operator {twice[0]!r} in several stages"
        missing = sorted({operator.name for operator in self.operators} - set(counts))
        return f"operator {missing[0]!r} in no stage" if missing else ""

    def save(self, path: str | Path) -> None:
        """Replace a file with the plan as JSON, atomically.

        Raises:
            OSError: if the file cannot be written.
        """
        write_json(path, self.to_json(), indent=1)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote.

        Raises:
            PlanError: if the file cannot be read, is not JSON, breaks the schema, or was changed.
        """
        return cls.from_json(read_json(path, _FILE, _FILE_REMEDY), str(path))
