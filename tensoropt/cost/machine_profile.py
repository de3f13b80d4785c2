"""The profile of a machine: its measurements, as a value and as a file.

The file has a version, a schema, a digest of its contents, and the setting in which it is valid:
processor, number of ranks, versions. It is always replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, median, median_low
from typing import Annotated, Any

from annotated_types import Ge, Len

from tensoropt.converters import Natural, Number, Positive
from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.cost.cluster import Cluster, Device, load_cluster
from tensoropt.cost.measured_operator_times import (
    FlatMeasuredOperator,
    MeasuredOperator,
    OperatorTimes,
    calibrated,
)
from tensoropt.cost.slowdown_in_steps import Factors, MeasuredStep, factors
from tensoropt.errors import PlanError, TensorOptError
from tensoropt.json_files import read_json, write_json
from tensoropt.parallel.resharding import Runs, StepTraffic
from tensoropt.signed_files import FileKind

__all__ = ["MeasuredCollective", "Overheads", "Profile", "Setting", "measured_cluster"]

_REMEDY = "Measure again with `tensoropt profile --force`, or remove the file."
_FILES = FileKind(10, "profiles", _REMEDY)


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting in which measurements are valid.

    Attributes:
        processor: name of the processor.
        cores_per_host: cores of the smallest machine.
        ranks_per_host: number of ranks of every machine.
        tensorflow: version of TensorFlow.
        mpi: the MPI library and its version. It is empty if MPI was not started, and then equal to
            every version.
    """

    processor: str
    cores_per_host: Positive
    ranks_per_host: Annotated[tuple[Positive, ...], Len(1)]
    tensorflow: str
    mpi: str

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return sum(self.ranks_per_host)

    @property
    def file_name(self) -> str:
        """The name of the profile's file, which does not depend on the version of MPI."""
        values = asdict(replace(self, mpi=""))
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return f"{self.ranks}-ranks-{digest[:12]}.json"

    def differences(self, other: Setting) -> list[str]:
        """Return the differences of another setting in words: ``ranks_per_host [2] instead of
        [4]``."""
        mine, others = asdict(self), asdict(other)
        return [
            f"{name} {others[name]!r} instead of {mine[name]!r}"
            for name in mine
            if mine[name] != others[name]
            and not (name == "mpi" and "" in (mine[name], others[name]))
        ]


@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """One collective of one size, which ran on all groups along some axes at once.

    Attributes:
        kind: the collective.
        runs: contiguity in memory of the pieces (`bandwidth.matrices.RUNS`); empty if it makes
            no difference.
        axes: the mesh axes of the groups, ascending.
        wanted_bytes: the power of 2 that was asked for.
        bytes: bytes that a rank held before: the next size that divides by the group.
        nanoseconds: median of the time from the arrival of the last rank, or, if ranks share cores,
            of the time that the cores spend (`collectives.bandwidth.timing.seconds_taken`).
        spread: interquartile range divided by the median.
        outliers: number of repetitions far outside the quartiles.
    """

    kind: str
    runs: Runs
    axes: Annotated[tuple[Natural, ...], Len(1)]
    wanted_bytes: Positive
    bytes: Positive
    nanoseconds: Positive
    spread: Annotated[Number, Ge(0)]
    outliers: Natural


@dataclass(frozen=True, slots=True)
class Overheads:
    """Times of a step besides computing and communicating.

    If ranks share cores, they are times that the cores spend
    (`collectives.bandwidth.timing.seconds_taken`).

    Attributes:
        dispatch_nanoseconds: time to start an operator in TensorFlow's executor.
        collective_nanoseconds: time of a collective besides the network: starting its operator, and
            waiting for the other ranks' calls.
        step_nanoseconds: time of a run: starting the session, agreeing on the call, ending
            together.
    """

    dispatch_nanoseconds: Natural
    collective_nanoseconds: Natural
    step_nanoseconds: Natural


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurements of a machine.

    Attributes:
        setting: the setting in which they are valid.
        mesh: sizes of the mesh axes of all ranks.
        complete: whether everything that was asked for has been measured.
        collectives: the measured collectives.
        overheads: None until they are measured.
        operators: the measured operators.
        skipped: operators that could not be timed: type and reason, by a digest.
        steps: measured training steps, which give the slowdown of everything else in steps.
    """

    setting: Setting
    mesh: tuple[Annotated[int, Ge(2)], ...]
    complete: bool = False
    collectives: tuple[MeasuredCollective, ...] = ()
    overheads: Overheads | None = None
    operators: tuple[FlatMeasuredOperator, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    steps: tuple[MeasuredStep, ...] = ()

    def in_steps(self) -> Factors:
        """Return the slowdown in training steps of everything that was measured alone."""
        tables = {(table.kind, table.axes): table for table in self._alone()}

        def alone(traffic: StepTraffic) -> float:
            axes = tuple(sorted(traffic.axes))
            by_runs = tables.get((f"{traffic.kind} {traffic.runs}", axes))
            table = by_runs or tables.get((traffic.kind, axes))
            return 1.0 if table is None else table.nanoseconds_of(traffic.bytes)

        return factors(self.steps, alone)

    def tables(self) -> tuple[BandwidthTable, ...]:
        """Return bandwidth tables of collectives in training steps, by collective and
        partitioning."""
        if not self.steps:
            return self._alone()
        slowdown = self.in_steps()
        tables = []
        for table in self._alone():
            kind = table.kind.partition(" ")[0]
            times = {
                size: round(table.nanoseconds_of(size) * slowdown.of(kind, table.axes, size))
                for size in _with_powers_between(table.bytes)
            }
            tables.append(replace(table, bytes=tuple(times), nanoseconds=_never_falling(times)))
        return tuple(tables)

    def operators_in_steps(self) -> tuple[MeasuredOperator, ...]:
        """Return the operators with their times in training steps."""
        slowdown = self.in_steps().computing
        return tuple(each.scaled(slowdown) for each in self.operators)

    def operator_times(self, device: Device) -> OperatorTimes:
        """Return the times of operators in training steps, measured or estimated.

        Args:
            device: the device of the measured cluster, see `measured_cluster`.
        """
        slowdown = self.in_steps()
        scaled = (each.scaled(slowdown.computing) for each in self.operators)
        return OperatorTimes(scaled, device, slowdown.rereading)

    def _alone(self) -> tuple[BandwidthTable, ...]:
        """Return bandwidth tables of collectives that were measured alone.

        If a collective was measured with several kinds of runs, there is a table for each
        ("allgather short") and one of their mean ("allgather"). Of repeated measurements the median
        counts. A measurement that took longer than a larger one was disturbed, and is corrected
        (`_never_falling`).
        """
        repeated: dict[tuple[str, str, tuple[int, ...], int], list[MeasuredCollective]] = {}
        for each in self.collectives:
            key = each.kind, each.runs, each.axes, each.wanted_bytes
            repeated.setdefault(key, []).append(each)
        times_of: dict[tuple[str, tuple[int, ...]], dict[int, list[tuple[int, float]]]] = {}
        for (name, runs, axes, wanted), repetitions in repeated.items():
            time = median(each.nanoseconds for each in repetitions)
            for kind in {name, f"{name} {runs}".strip()}:
                by_wanted_size = times_of.setdefault((kind, axes), {})
                by_wanted_size.setdefault(wanted, []).append((repetitions[0].bytes, time))
        tables = []
        for (kind, axes), by_wanted_size in sorted(times_of.items()):
            times = {
                max(bytes_ for bytes_, _ in measured): round(mean(time for _, time in measured))
                for _, measured in sorted(by_wanted_size.items())
            }
            tables.append(
                BandwidthTable(kind, self.mesh, axes, tuple(sorted(times)), _never_falling(times))
            )
        return tuple(tables)

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values, with its digest."""
        skipped = dict(sorted(self.skipped.items()))
        return _FILES.signed(replace(self, skipped=skipped))

    @classmethod
    def from_json(cls, values: object, origin: str) -> Profile:
        """Return the profile of JSON values: the inverse of `to_json`.

        Raises:
            PlanError: if the version, the schema or the digest is wrong, or the measurements
                contradict each other.
        """
        profile = _FILES.read(cls, values, origin)
        try:
            cluster = measured_cluster(load_cluster("this-machine"), profile)
            Cluster.from_json(cluster.to_json(), "its cluster")
        except TensorOptError as error:
            raise PlanError(
                f"the measurements of a profile agree. Got {origin}: {error} {_REMEDY}"
            ) from error
        return profile

    def save(self, path: str | Path) -> None:
        """Replace the file in one operation, so that it is never incomplete."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, setting: Setting | None = None, force: bool = False) -> Profile:
        """Read a profile that `save` wrote.

        Args:
            path: path of the file.
            setting: the setting in which it has to be valid; None for any.
            force: accept a profile of another setting.

        Raises:
            PlanError: if the file cannot be read, is incomplete, edited, of another version, or
                valid in another setting.
        """
        values = read_json(path, "a profile is a whole, readable JSON file", _REMEDY)
        profile = cls.from_json(values, str(path))
        if setting is not None and not force:
            differences = setting.differences(profile.setting)
            if differences:
                raise PlanError(
                    "a profile is valid for the machine, the ranks and the versions that it was "
                    f"measured with. Got {path}, measured with {'; '.join(differences)}. Run "
                    "`tensoropt profile` here, or force its use."
                )
        return profile


def measured_cluster(cluster: Cluster, profile: Profile) -> Cluster:
    """Return a cluster with the collectives, rates and overheads that a profile measured.

    All times are those in training steps. Memory, safety factor, and links for collectives that
    were not measured stay the cluster's.
    """
    overheads = profile.overheads or Overheads(0, 0, 0)
    setting, slowdown = profile.setting, profile.in_steps()
    dispatch = round(overheads.dispatch_nanoseconds * slowdown.computing)
    return replace(
        cluster,
        description=f"{cluster.description} Measured on {setting.processor} with "
        f"{setting.ranks} ranks, TensorFlow {setting.tensorflow}.",
        device=calibrated(cluster.device, profile.operators_in_steps(), dispatch),
        collective_overhead_seconds=overheads.collective_nanoseconds * slowdown.calling / 1e9
        or cluster.collective_overhead_seconds,
        step_overhead_seconds=overheads.step_nanoseconds * slowdown.computing / 1e9,
        measured=profile.tables(),
    )


def _with_powers_between(sizes: Sequence[int]) -> list[int]:
    """Return sizes and the powers of 2 between them, since the slowdown depends on the size."""
    powers = {1 << power for power in range(sizes[0].bit_length(), sizes[-1].bit_length())}
    return sorted({*sizes, *powers})


def _never_falling(times: dict[int, int]) -> tuple[int, ...]:
    """Return times by ascending size, corrected so that no time is above that of a larger size.

    Adjacent times that fall are replaced by their median (isotonic regression in absolute
    differences, by pooling adjacent violators: Ayer et al., 1955). Of two middle times the smaller
    counts, since disturbances make measurements longer.
    """
    pools: list[list[int]] = []
    for size in sorted(times):
        pools.append([times[size]])
        while len(pools) > 1 and median_low(pools[-2]) > median_low(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return tuple(max(1, median_low(pool)) for pool in pools for _ in pool)
