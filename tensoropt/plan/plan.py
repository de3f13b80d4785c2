"""A plan: a chosen strategy with its predicted costs, for one graph and cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensoropt.cost.cluster import Cluster
from tensoropt.errors import LayoutError, PlanError
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.json_files import digest_of, read_json, schema_error, write_json
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.compared_numbers import compared_with
from tensoropt.plan.comparison import Comparison, compare
from tensoropt.plan.executed_steps import executed_steps
from tensoropt.plan.peak_margin import ESTIMATE, SUM
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.plan.stage_plan import StagePlan
from tensoropt.plan.validation_result import Validation
from tensoropt.plan.ways import way
from tensoropt.tdl import types_with
from tensoropt.transformations.rewritten.application import Rewrite
from tensoropt.transformations.staged.schedule import Schedule

__all__ = ["FEWER_DEVICES", "NAMES_ONLY", "OperatorPlan", "Plan"]

FEWER_DEVICES = frozenset({"mini_parallelism", "mini_cost"})
"""Options of `find_strategy` whose plans may leave devices of the job without work."""

NAMES_ONLY = types_with(role="names")
"""Types of operators that only name or group other operators' outputs."""

_SCHEMA = 12
_SINCE_11: dict[str, Any] = {"peak_is_estimated": False, "frontier_ways": [], "looked_at": ""}
_SINCE_10: dict[str, Any] = {"fewer_devices": [], **_SINCE_11}
_SINCE_9: dict[str, Any] = {
    "rewrites": [],
    "frontier_peaks": [],
    **_SINCE_10,
}
_SINCE_8: dict[str, Any] = {"copies": 1, **_SINCE_9}
_SINCE_6: dict[str, Any] = {"stages": [], "schedule": None, **_SINCE_8}
_SINCE_5: dict[str, Any] = {"microbatches": 1, **_SINCE_6}
_SINCE_4: dict[str, Any] = {"digest": None, **_SINCE_5}
_SINCE_3: dict[str, Any] = {"batch_norm": "global", **_SINCE_4}
_SINCE_2: dict[str, Any] = {"reshardings": [], **_SINCE_3}
_SINCE: dict[int, dict[str, Any]] = {
    1: {
        "validation": None,
        "executed_nanoseconds": None,
        "network_nanoseconds": None,
        "epsilon": 0.0,
        "within": None,
        **_SINCE_2,
    },
    2: _SINCE_2,
    3: _SINCE_3,
    4: _SINCE_4,
    5: _SINCE_5,
    6: _SINCE_6,
    7: _SINCE_8,
    8: _SINCE_8,
    9: _SINCE_9,
    10: _SINCE_10,
    11: _SINCE_11,
}
"""For each older schema, values of the fields that its plans lack."""
_FILE = "a plan is a whole, readable JSON file"
_FILE_REMEDY = (
    "Give the path of a file that Plan.save or `tensoropt plan --output` wrote. Save the plan "
    "again if it was damaged."
)
_REMEDY = "Find the strategy again and save it; plans are not written by hand."


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One operator of a plan.

    Attributes:
        name: its name in the script.
        type: TensorFlow's operator type.
        splits: for each index of its iteration space, the mesh axes that split it.
        mesh: its device mesh in the paper's notation, ``[2,2]``.
        inputs: tensor map of each input on that mesh, ``[0,-1]``.
        output: tensor map of its first output.
        time_nanoseconds: predicted time of the operator, forward and backward, without
            resharding.
        memory_bytes: predicted memory per device.
        kept: the copies of its outputs that are kept for the backward pass, one of
            `tensoropt.parallel.configuration.KEPT`.
    """

    name: str
    type: str
    splits: tuple[tuple[int, ...], ...]
    mesh: str
    inputs: tuple[str, ...]
    output: str
    time_nanoseconds: int
    memory_bytes: int
    kept: str = "both"

    @property
    def is_split(self) -> bool:
        """Whether the devices share its computation."""
        return any(self.splits)

    def to_json(self) -> dict[str, Any]:
        """The fields by name, as of `dataclasses.asdict`, in a tenth of its time."""
        return {name: getattr(self, name) for name in self.__slots__}


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
        time_nanoseconds: the search's sum of times of one step (equation 3), by which points of the
            frontier are compared; see `predicted_nanoseconds`.
        memory_bytes: predicted memory per device: the search's sum (equation 3).
        memory_limit_bytes: the memory limit, safety factor included; None for none.
        frontier: (memory_bytes, time_nanoseconds) of every point of the frontier that it was chosen
            from. Data parallelism may be planned in place of the fastest point, see ``notes``.
        exact: whether that frontier is the algorithm's exact one.
        notes: sentences for the user.
        peak_bytes: predicted peak per device: the most memory allocated at once, temporary buffers
            included, when the step is followed operator by operator; None if it is unknown. For
            stages without a dry run it is the largest stage's sum.
        peak_is_estimated: whether ``peak_bytes`` is an estimate instead of a dry run's; False in
            plans older than schema 12.
        algorithm: the solver that found it, "ft" for frontier tracking.
        validation: the candidates that were measured before it was adopted; None if none was.
        executed_nanoseconds: predicted time of one step as it is executed. A copy that several
            readers share is made once, but the search counts it for each. None in older plans.
        network_nanoseconds: the part of it inside collectives; None in older plans.
        epsilon: the gap that the user allowed, 0 for an exact frontier.
        within: the proven gap: for every strategy, some point of the frontier takes at most
            1 + ``within`` times its memory and its time; 0 if the frontier is exact, None if
            nothing is proven.
        reshardings: the collectives that its edges need. A resharding that is not listed is planned
            when it runs, as all are for plans older than schema 3.
        batch_norm: the statistics of batch normalisation, see `tensoropt.graph.batch_norm`;
            "global" in plans older than schema 4.
        microbatches: number of parts of the batch whose gradients are computed one after another
            and added up; 1 in plans older than schema 6.
        stages: the stages of a pipeline, on devices in order; empty if each device has its part of
            all operators, as in plans older than schema 7. Configurations of a stage's operators
            are on the stage's mesh.
        copies: number of copies of a pipeline, each on machines of its own with its part of each
            microbatch. Copies are the outermost part of each stage's mesh. 1 in plans older than
            schema 9.
        schedule: the order of a pipeline's passes, "1f1b" or "gpipe"; "side_by_side" if stages are
            branches that run at once; None without stages.
        rewrites: substitutions that a run makes in the script's graph, in their order; none in
            plans older than schema 10.
        frontier_ways: for each point of the frontier the way to run the step, in a few words, such
            as "whole batch" or "2 stages, 8 microbatches"; empty in plans older than schema 12
            without rewritten graphs.
        looked_at: the ways to run the step that were searched, those that were not, and the
            reasons, in one line; empty in plans older than schema 12.
        frontier_peaks: (memory_bytes, peak) of points spread evenly over the frontier, estimated or
            from dry runs; none in plans older than schema 10.
        fewer_devices: (devices, nanoseconds) for 1, 2, 4, ... devices: the predicted time of one
            step by data parallelism as it is executed, None if it does not fit the memory. Empty
            in plans older than schema 11, and on one device.
    """

    option: str
    devices: int
    mesh_axes: tuple[int, ...]
    cluster: Cluster
    graph_digest: str
    roots: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    batch_placeholders: tuple[str, ...]
    operators: tuple[OperatorPlan, ...]
    time_nanoseconds: int
    memory_bytes: int
    memory_limit_bytes: int | None
    frontier: tuple[tuple[int, int], ...]
    exact: bool
    notes: tuple[str, ...] = ()
    peak_bytes: int | None = None
    algorithm: str = "ft"
    validation: Validation | None = None
    executed_nanoseconds: int | None = None
    network_nanoseconds: int | None = None
    epsilon: float = 0.0
    within: float | None = None
    reshardings: tuple[RecordedResharding, ...] = ()
    batch_norm: BatchNorm = "global"
    microbatches: int = 1
    stages: tuple[StagePlan, ...] = ()
    schedule: Schedule | None = None
    copies: int = 1
    rewrites: tuple[Rewrite, ...] = ()
    frontier_ways: tuple[str, ...] = ()
    looked_at: str = ""
    frontier_peaks: tuple[tuple[int, int], ...] = ()
    fewer_devices: tuple[tuple[int, int | None], ...] = ()
    peak_is_estimated: bool = False

    @property
    def mesh(self) -> Mesh:
        """The devices as mesh axes."""
        return Mesh(self.mesh_axes)

    @property
    def predicted_nanoseconds(self) -> int:
        """Predicted time of one training step as it is executed.

        For plans older than schema 2 it is the search's sum.
        """
        executed = self.executed_nanoseconds
        return self.time_nanoseconds if executed is None else executed

    @property
    def predicted_step_seconds(self) -> float:
        """`predicted_nanoseconds`, in seconds."""
        return self.predicted_nanoseconds / 1e9

    @property
    def peak_margin(self) -> float:
        """Factor by which a step's real peak may exceed ``peak_bytes``: 1 after a dry run."""
        if not self.peak_is_estimated:
            return 1.0
        return SUM if self.stages else ESTIMATE

    @property
    def compared(self) -> str:
        """The comparison of the predicted step with fewer devices; empty if nothing is known."""
        return compared_with(self.devices, self.predicted_nanoseconds, self.fewer_devices)

    @property
    def predicted_network_seconds(self) -> float:
        """Predicted time of one step inside collectives, counted from the arrival of all ranks.

        For an older plan it is the time of all resharding, without collectives inside operators.
        """
        if self.network_nanoseconds is not None:
            return self.network_nanoseconds / 1e9
        computing = sum(operator.time_nanoseconds for operator in self.operators)
        overhead = round(self.cluster.step_overhead_seconds * 1e9)
        return max(0, self.time_nanoseconds - computing - overhead) / 1e9

    def compare(self) -> Comparison:
        """Compare predicted and measured costs, over the steps of equal plans in this process.

        Memory is this rank's, compared with the prediction for its stage, if that is known.
        """
        steps = executed_steps(self)
        peak = self.peak_bytes
        if steps.stage is not None:
            stage = self.stages[steps.stage]
            peak = stage.memory_bytes if self.peak_is_estimated else stage.peak_bytes
        return compare(
            steps,
            self.predicted_step_seconds,
            self.predicted_network_seconds,
            peak,
            bool(self.cluster.measured) or self.cluster.step_overhead_seconds > 0,
            self.peak_margin,
        )

    @property
    def configurations(self) -> dict[str, Configuration]:
        """Each operator's configuration, by name."""
        return {
            operator.name: Configuration(operator.splits, operator.kept)
            for operator in self.operators
        }

    def runs_as(self, other: Plan) -> bool:
        """Whether another plan of the same step runs it in the same way."""
        own_step, other_step = (
            (
                plan.configurations,
                plan.microbatches,
                plan.rewrites,
                (plan.schedule, plan.copies),
                [(stage.mesh_axes, stage.operators, stage.recompute) for stage in plan.stages],
            )
            for plan in (self, other)
        )
        return own_step == other_step

    @property
    def stage_of(self) -> dict[str, int]:
        """The number of each operator's stage, by name; empty for a plan without stages."""
        return {name: n for n, stage in enumerate(self.stages) for name in stage.operators}

    def devices_of_stage(self, number: int) -> tuple[int, ...]:
        """The devices of a stage in the order of its mesh: consecutive ones in each copy."""
        per_copy = [stage.mesh.size // self.copies for stage in self.stages]
        first = sum(per_copy[:number])
        return tuple(
            copy * sum(per_copy) + first + place
            for copy in range(self.copies)
            for place in range(per_copy[number])
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
        split = sum(operator.is_split for operator in self.operators)
        by = "" if self.algorithm == "ft" else f" by {self.algorithm}"
        statistics = "" if self.batch_norm == "global" else f", batch_norm={self.batch_norm}"
        parts = "" if self.microbatches == 1 else f", {self.microbatches} microbatches"
        stages = f"{len(self.stages)} stages, " if self.stages else ""
        rewrites = f", {len(self.rewrites)} substitutions" if self.rewrites else ""
        compared = self.compared
        return (
            f"plan {self.option}{by} on {devices_of(self.devices)}: {stages}{split} of "
            f"{len(self.operators)} operators split, "
            f"{self.predicted_step_seconds * 1e3:.3f} ms a step (predicted), "
            f"{self.memory_bytes / 2**20:.1f} MiB a device{parts}{statistics}{rewrites}"
            f"{compared and f'; {compared}'}"
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values that follow the schema, with their digest."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "cluster"}
        values["operators"] = [operator.to_json() for operator in self.operators]
        if self.validation is not None:
            values["validation"] = self.validation.to_json()
        values["reshardings"] = [resharding.to_json() for resharding in self.reshardings]
        values["stages"] = [stage.to_json() for stage in self.stages]
        values["rewrites"] = [rewrite.to_json() for rewrite in self.rewrites]
        plain: dict[str, Any] = json.loads(json.dumps(values))
        plain = {"schema": _SCHEMA, **plain, "cluster": self.cluster.to_json()}
        return {**plain, "digest": digest_of(plain)}

    @classmethod
    def from_json(cls, values: object, origin: str = "a plan") -> Plan:
        """The inverse of `to_json`.

        Raises:
            PlanError: naming the field that breaks the schema or contradicts another field; or if
                the digest does not match. Plans older than schema 5 have no digest.
        """
        given = values
        version = values.get("schema", "none") if isinstance(values, dict) else "none"
        if isinstance(values, dict) and type(version) is int and version in _SINCE:
            values = _SINCE[version] | _with_ways(values) | {"schema": _SCHEMA}
            version = _SCHEMA
        if version != _SCHEMA:
            raise PlanError(
                f"this TensorOpt reads plans up to schema {_SCHEMA}. Got {origin} of schema "
                f"{version}. Find the strategy again with this version."
            )
        error = schema_error(values, "tensoropt.plan", "plan.schema.json")
        if error is not None:
            place = "/".join(map(str, error.path)) or "the whole"
            raise PlanError(
                f"a plan follows its schema. Got in {origin} at {place}: {error.message}. {_REMEDY}"
            )
        assert isinstance(values, dict)
        fields = {name: _frozen(values[name]) for name in cls.__slots__ if name != "cluster"}
        fields["operators"] = tuple(
            OperatorPlan(**{key: _frozen(value) for key, value in entry.items()})
            for entry in values["operators"]
        )
        fields["shapes"] = {name: tuple(shape) for name, shape in values["shapes"].items()}
        if values["validation"] is not None:
            fields["validation"] = Validation.from_json(values["validation"])
        fields["stages"] = tuple(map(StagePlan.from_json, values["stages"]))
        fields["rewrites"] = tuple(map(Rewrite.from_json, values["rewrites"]))
        contradiction = ""
        try:
            fields["reshardings"] = tuple(map(RecordedResharding.from_json, values["reshardings"]))
        except LayoutError as error:
            contradiction = f"an invalid resharding: {error}"
        plan = cls(cluster=Cluster.from_json(values["cluster"], origin), **fields)
        contradiction = contradiction or plan._contradiction()
        if contradiction:
            raise PlanError(
                f"the fields of a plan agree. Got in {origin} {contradiction}. {_REMEDY}"
            )
        assert isinstance(given, dict)
        if values["digest"] != (digest_of(given) if "digest" in given else None):
            raise PlanError(
                f"a plan is as it was found. Got {origin}, which was changed afterwards. {_REMEDY}"
            )
        return plan

    def _contradiction(self) -> str:
        """A contradiction between fields, which a schema cannot express; empty if there is none."""
        if self.mesh.size != self.devices:
            return f"mesh axes {list(self.mesh_axes)} for {self.devices} devices"
        if not any(m <= self.memory_bytes and t <= self.time_nanoseconds for m, t in self.frontier):
            return "a memory and time that are below its frontier"
        if self.validation is not None:
            trials = self.validation.trials
            adopted = trials[self.validation.adopted : self.validation.adopted + 1]
            # Trials of plans older than schema 11 have the search's sum.
            if [trial.time_nanoseconds for trial in adopted] not in (
                [self.predicted_nanoseconds],
                [self.time_nanoseconds],
            ):
                return "the validation of another plan"
        counts = [count or 0 for count, _ in self.fewer_devices]
        if counts != sorted({*counts} & {*range(1, self.devices)}):
            return f"times on {counts} devices beside {self.devices}"
        if self.stages and (contradiction := self._stages_contradict()):
            return contradiction
        if self.frontier_ways and len(self.frontier_ways) != len(self.frontier):
            return f"ways of {len(self.frontier_ways)} points of {len(self.frontier)}"
        if bool(self.stages) != (self.schedule is not None):
            return f"schedule {self.schedule!r} of {len(self.stages)} stages"
        stage_of, axes = self.stage_of, [len(stage.mesh_axes) for stage in self.stages]
        for operator in self.operators:
            most = axes[stage_of[operator.name]] if axes else len(self.mesh_axes)
            splits = f"splits {operator.splits} of {operator.name!r}"
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
            return f"several stages of {twice[0]!r}"
        missing = sorted({operator.name for operator in self.operators} - set(counts))
        return f"no stage of {missing[0]!r}" if missing else ""

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


def _with_ways(values: dict[str, Any]) -> dict[str, Any]:
    """An older plan's values, with the substitutions of each point as its way.

    Older plans have the whole batch. A value of another type stays, and the schema refuses it.
    """
    substitutions = values.get("frontier_rewrites")
    if not isinstance(substitutions, list) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in substitutions
    ):
        return values
    rest = {name: value for name, value in values.items() if name != "frontier_rewrites"}
    return {**rest, "frontier_ways": [way(names) for names in substitutions]}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
