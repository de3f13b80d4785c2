"""The profile: what was measured on one machine, as a value and as a file.

A file is versioned, follows a schema, and carries a digest of its contents; it says for which
processor, number of ranks and versions it holds. It is replaced as a whole, never written into.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, median, median_low
from typing import Any

from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.cost.cluster import Cluster, Device, load_cluster
from tensoropt.cost.measured_operator_times import (
    MeasuredOperator,
    OperatorTimes,
    calibrated,
)
from tensoropt.cost.slowdown_in_steps import Factors, MeasuredStep, factors
from tensoropt.errors import PlanError, TensorOptError
from tensoropt.json_files import digest_of, read_json, schema_error, write_json
from tensoropt.parallel.resharding import StepTraffic

__all__ = ["MeasuredCollective", "Overheads", "Profile", "Setting", "measured_cluster"]

_SCHEMA = 6
_ANEW = "Measure again with `tensoropt profile --force`, or remove the file"


@dataclass(frozen=True, slots=True)
class Setting:
    """What measurements hold for.

    Attributes:
        processor: the processor's name.
        cores_per_host: cores of the smallest machine.
        ranks_per_host: number of ranks of every machine.
        tensorflow: its version.
        mpi: the MPI library and its version; empty where MPI has not been started, which agrees
            with all.
    """

    processor: str
    cores_per_host: int
    ranks_per_host: tuple[int, ...]
    tensorflow: str
    mpi: str

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(self.ranks_per_host)

    @property
    def file_name(self) -> str:
        """Name of its file in the folder of profiles; without MPI's version."""
        values = asdict(replace(self, mpi=""))
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return f"{self.ranks}-ranks-{digest[:12]}.json"

    def differences(self, other: Setting) -> list[str]:
        """What is different there, in words: ``ranks_per_host [2] instead of [4]``."""
        here, there = asdict(self), asdict(other)
        return [
            f"{name} {there[name]!r} instead of {here[name]!r}"
            for name in here
            if here[name] != there[name] and not (name == "mpi" and "" in (here[name], there[name]))
        ]


@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """One collective at one size, over all groups along some axes at once.

    Attributes:
        kind: the collective.
        runs: how its pieces lie in memory, see `collectives.bandwidth.RUNS`; empty where that makes
            no difference.
        axes: the mesh axes of the groups, ascending.
        wanted_bytes: the power of 2 that was asked for.
        bytes: what a rank held before: the next size that divides by the group.
        nanoseconds: the median of its network time: that of the rank which arrives last, or where
            ranks share cores what these spend in it (`collectives.bandwidth.shared_seconds`).
        spread: interquartile range divided by the median.
        outliers: number of repetitions far outside the quartiles.
    """

    kind: str
    runs: str
    axes: tuple[int, ...]
    wanted_bytes: int
    bytes: int
    nanoseconds: int
    spread: float
    outliers: int


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a step takes besides computing and moving.

    Attributes:
        dispatch_nanoseconds: of an operator, in TensorFlow's executor.
        collective_nanoseconds: of a collective, besides its network time: calling Python, and
            waiting for other ranks that do the same.
        step_nanoseconds: of a run: starting the session, agreeing on the call, ending together.
    """

    dispatch_nanoseconds: int
    collective_nanoseconds: int
    step_nanoseconds: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured.

    Attributes:
        setting: what it holds for.
        mesh: sizes of the mesh axes of all ranks.
        complete: whether everything that was asked for has been measured.
        collectives: measured collectives.
        overheads: None until they are measured.
        operators: measured operators.
        skipped: operators that could not be timed, by a digest, with type and reason.
        steps: steps of training, which tell what the rest takes in such.
    """

    setting: Setting
    mesh: tuple[int, ...]
    complete: bool = False
    collectives: tuple[MeasuredCollective, ...] = ()
    overheads: Overheads | None = None
    operators: tuple[MeasuredOperator, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    steps: tuple[MeasuredStep, ...] = ()

    def in_steps(self) -> Factors:
        """How much longer than alone things take in steps of training."""
        tables = {(table.kind, table.axes): table for table in self._alone()}

        def alone(move: StepTraffic) -> float:
            axes = tuple(sorted(move.axes))
            table = tables.get((f"{move.kind} {move.runs}", axes)) or tables.get((move.kind, axes))
            return 1.0 if table is None else table.nanoseconds_of(move.bytes)

        return factors(self.steps, alone)

    def tables(self) -> tuple[BandwidthTable, ...]:
        """Bandwidth tables, one per collective and device partition, as in steps of training."""
        if not self.steps:
            return self._alone()
        longer = self.in_steps()
        found = []
        for table in self._alone():
            kind = table.kind.partition(" ")[0]
            times = {
                size: round(table.nanoseconds_of(size) * longer.of(kind, table.axes, size))
                for size in _with_sizes_between(table.bytes)
            }
            found.append(replace(table, bytes=tuple(times), nanoseconds=_rising(times)))
        return tuple(found)

    def operators_in_steps(self) -> tuple[MeasuredOperator, ...]:
        """The operators, with their times in steps of training."""
        longer = self.in_steps().computing
        return tuple(each.scaled(longer) for each in self.operators)

    def operator_times(self, device: Device) -> OperatorTimes:
        """What operators take in steps of training, measured or not.

        Args:
            device: of the cluster that was measured, see `measured_cluster`.
        """
        longer = self.in_steps()
        scaled = (each.scaled(longer.computing) for each in self.operators)
        return OperatorTimes(scaled, device, longer.rereading)

    def _alone(self) -> tuple[BandwidthTable, ...]:
        """Bandwidth tables of what was measured one by one.

        Where pieces may lie differently, there is one for each way ("allgather short"), and one
        of the mean of all ("allgather"). Of what was measured several times the median counts. No
        size takes longer than a larger one: where it did when measured, something disturbed it, or
        them.
        """
        repeated: dict[tuple[str, str, tuple[int, ...], int], list[MeasuredCollective]] = {}
        for each in self.collectives:
            key = each.kind, each.runs, each.axes, each.wanted_bytes
            repeated.setdefault(key, []).append(each)
        found: dict[tuple[str, tuple[int, ...]], dict[int, list[tuple[int, float]]]] = {}
        for (name, runs, axes, wanted), own in repeated.items():
            time = median(each.nanoseconds for each in own)
            for kind in {name, f"{name} {runs}".strip()}:
                sizes = found.setdefault((kind, axes), {})
                sizes.setdefault(wanted, []).append((own[0].bytes, time))
        tables = []
        for (kind, axes), sizes in sorted(found.items()):
            times = {
                max(bytes_ for bytes_, _ in some): round(mean(time for _, time in some))
                for _, some in sorted(sizes.items())
            }
            tables.append(
                BandwidthTable(kind, self.mesh, axes, tuple(sorted(times)), _rising(times))
            )
        return tuple(tables)

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values, with its digest."""
        values: dict[str, Any] = {
            "schema": _SCHEMA,
            "setting": asdict(self.setting),
            "mesh": list(self.mesh),
            "complete": self.complete,
            "collectives": [asdict(each) for each in self.collectives],
            "overheads": None if self.overheads is None else asdict(self.overheads),
            "operators": [each.to_json() for each in self.operators],
            "skipped": dict(sorted(self.skipped.items())),
            "steps": [step.to_json() for step in self.steps],
        }
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return {**plain, "digest": digest_of(plain)}

    @classmethod
    def from_json(cls, values: object, origin: str) -> Profile:
        """The inverse of `to_json`.

        Raises:
            PlanError: another version, a broken rule of the schema, a wrong digest, or measurements
                that no cluster has.
        """
        version = values.get("schema", "none") if isinstance(values, dict) else "none"
        if version != _SCHEMA:
            raise PlanError(
                f"this TensorOpt reads profiles of schema {_SCHEMA}. Got {origin} of schema "
                f"{version}. {_ANEW}."
            )
        error = schema_error(values, "tensoropt.cost", "profile.schema.json")
        if error is not None:
            place = "/".join(map(str, error.path)) or "the whole"
            raise PlanError(
                f"a profile follows its schema. Got in {origin} at {place}: {error.message}. "
                f"{_ANEW}."
            )
        assert isinstance(values, dict)
        if values["digest"] != digest_of(values):
            raise PlanError(
                f"a profile is as it was measured. Got {origin}, which was changed afterwards. "
                f"{_ANEW}."
            )
        try:
            profile = cls._of(values)
            cluster = measured_cluster(load_cluster("this-machine"), profile)
            Cluster.from_json(cluster.to_json(), "its cluster")
        except TensorOptError as error:
            raise PlanError(
                f"the measurements of a profile agree. Got {origin}: {error} {_ANEW}."
            ) from error
        return profile

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Profile:
        """The profile of values that follow the schema."""
        setting = dict(values["setting"])
        setting["ranks_per_host"] = tuple(setting["ranks_per_host"])
        overheads = values["overheads"]
        return cls(
            setting=Setting(**setting),
            mesh=tuple(values["mesh"]),
            complete=values["complete"],
            collectives=tuple(
                MeasuredCollective(**{**each, "axes": tuple(each["axes"])})
                for each in values["collectives"]
            ),
            overheads=None if overheads is None else Overheads(**overheads),
            operators=tuple(map(MeasuredOperator.from_json, values["operators"])),
            skipped=values["skipped"],
            steps=tuple(map(MeasuredStep.from_json, values["steps"])),
        )

    def save(self, path: str | Path) -> None:
        """Replace the file in one go: a process that ends meanwhile leaves the old or the new."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, setting: Setting | None = None, force: bool = False) -> Profile:
        """Read a profile that `save` wrote.

        Args:
            path: of the file.
            setting: what it is to hold for; None for anything.
            force: take one that holds for something else.

        Raises:
            PlanError: if the file cannot be read, is cut off, edited, of another version, or
                holds for another setting.
        """
        values = read_json(path, "a profile is a whole, readable JSON file", f"{_ANEW}.")
        profile = cls.from_json(values, str(path))
        if setting is not None and not force:
            different = setting.differences(profile.setting)
            if different:
                raise PlanError(
                    "a profile holds for the machine, the ranks and the versions that it was "
                    f"measured with. Got {path}, measured with {'; '.join(different)}. Run "
                    "`tensoropt profile` here, or force its use."
                )
        return profile


def measured_cluster(cluster: Cluster, profile: Profile) -> Cluster:
    """A cluster with what a profile measured: collectives, rates, overheads.

    Of it all, what it takes in steps of training. Memory, links between what was not measured and
    the safety factor stay the cluster's.
    """
    overheads = profile.overheads or Overheads(0, 0, 0)
    setting, longer = profile.setting, profile.in_steps()
    dispatch = round(overheads.dispatch_nanoseconds * longer.computing)
    return replace(
        cluster,
        description=f"{cluster.description} Measured on {setting.processor} with "
        f"{setting.ranks} ranks, TensorFlow {setting.tensorflow}.",
        device=calibrated(cluster.device, profile.operators_in_steps(), dispatch),
        collective_overhead_seconds=overheads.collective_nanoseconds * longer.calling / 1e9
        or cluster.collective_overhead_seconds,
        step_overhead_seconds=overheads.step_nanoseconds * longer.computing / 1e9,
        measured=profile.tables(),
    )


def _with_sizes_between(sizes: Sequence[int]) -> list[int]:
    """Sizes, and powers of 2 between them: what is learnt of one is not that of its neighbours."""
    powers = {1 << power for power in range(sizes[0].bit_length(), sizes[-1].bit_length())}
    return sorted({*sizes, *powers})


def _rising(times: dict[int, int]) -> tuple[int, ...]:
    """By size, no time above that of a larger one: where one is, both become their median.

    It is a nearest such sequence in absolute differences (isotonic regression, by pooling adjacent
    violators: Ayer et al., 1955), of several the fastest: what disturbs a measurement makes it
    longer. Small sizes, which all take the latency, so share one time.
    """
    pools: list[list[int]] = []
    for size in sorted(times):
        pools.append([times[size]])
        while len(pools) > 1 and median_low(pools[-2]) > median_low(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return tuple(max(1, median_low(pool)) for pool in pools for _ in pool)
