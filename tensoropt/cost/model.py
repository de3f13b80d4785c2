"""The cost model, which the search asks for times and memory, and its implementation for
clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.cost.cluster import Cluster
from tensoropt.cost.collective_time import (
    Span,
    axis_levels,
    collective_seconds,
    spans,
    whole_nanoseconds,
)
from tensoropt.cost.hierarchy import large_ones, parts
from tensoropt.cost.measured_operator_times import OperatorTimes
from tensoropt.cost.memory import Footprint, memory_model
from tensoropt.cost.operator_time import OperatorTime, OperatorWork, WorkOfRank, roofline_time
from tensoropt.errors import OptionError
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.step import LOCAL_KINDS

__all__ = ["ClusterCostModel", "CostModel", "MeasuredCostModel", "Overlapped"]


class Overlapped(NamedTuple):
    """The part of a collective that runs beside computation.

    Attributes:
        seconds: its time on the network.
        processor_seconds: time of the device's processor that it takes from computation.
    """

    seconds: float
    processor_seconds: float


class CostModel(Protocol):
    """Costs on one mesh of devices (TensorOpt, section 2.1, equations 1 and 2).

    A model is pure: it always gives the same answer to the same question. Times are whole
    nanoseconds, at least 1. Memory is whole bytes.
    """

    times_by_amounts: ClassVar[bool]
    """Whether an operator's time depends only on its family, dtype, flops, bytes and number of
    differentiated inputs."""

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """Return the time of one collective or local step on all groups along ``axes``.

        Args:
            kind: "allgather", "allreduce", "alltoall", "broadcast", "exchange" or "reduce_scatter";
                or the local steps "slice" and "mask".
            axes: the mesh axes of the groups, in any order.
            bytes_: bytes that a device holds before the collective, or after a local step.
        """
        ...

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Return the time of one operator, forward and backward, on the device that ends last.

        A `WorkOfRank` is timed on its rank's device, all other work on the slowest device.
        """
        ...

    def operator_memory(self, footprint: Footprint, /) -> int:
        """Return the memory of one operator on one device."""
        ...

    def step_nanoseconds(self) -> int:
        """Return the time of a step besides operators and collectives, at least 0."""
        ...


class ClusterCostModel:
    """Costs from the description of a cluster: its measured tables, links and rates.

    `collective_nanoseconds` is a `tensoropt.parallel.resharding.Price`.

    Args:
        cluster: the links and the device.
        mesh: a mesh of the cluster, such as ``cluster.mesh(devices)``.
        memory: name of the memory model.

    Attributes:
        extrapolated: for each kind of collective that was priced beyond its measured sizes, the
            largest measured size.

    Raises:
        LayoutError: if the mesh does not fit the cluster.
        OptionError: if there is no such memory model.
    """

    __slots__ = (
        "_ascending",
        "_levels",
        "_memory",
        "_slowest",
        "_spans",
        "_speeds",
        "_tables",
        "_times",
        "cluster",
        "extrapolated",
        "mesh",
    )

    times_by_amounts: ClassVar[bool] = True

    def __init__(self, cluster: Cluster, mesh: Mesh, memory: str = "paper") -> None:
        self.cluster = cluster
        self.mesh = mesh
        self._memory = memory_model(memory)
        self._tables = {
            (table.kind, table.axes): table for table in cluster.measured if table.mesh == mesh.axes
        }
        self.extrapolated: dict[str, int] = {}
        self._times: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._ascending: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._speeds = cluster.speeds(mesh.size)
        self._slowest = min(self._speeds)
        self._levels = axis_levels(cluster, mesh)
        self._spans: dict[tuple[int, ...], Sequence[Span]] = {}
        for axis in range(len(mesh.axes)):
            self._spans[(axis,)] = spans(cluster, mesh, (axis,))

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """Return the time of a collective: see `CostModel` and `tensoropt.cost.collective_time`."""
        if kind in LOCAL_KINDS:
            return self._copy_nanoseconds(bytes_)
        group = self._ascending.get(axes)
        if group is None:
            group = self._ascending[axes] = tuple(sorted(axes))
        key = kind, group, bytes_
        nanoseconds = self._times.get(key)
        if nanoseconds is None:
            overhead = self.cluster.collective_overhead_seconds
            nanoseconds = whole_nanoseconds(overhead + self.network_seconds(kind, group, bytes_))
            self._times[key] = nanoseconds
        return nanoseconds

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """Return the seconds of a collective from the arrival of the last device.

        If a hierarchical collective is faster (`goes_in_hierarchy`), the time is that of the
        hierarchical one. ``runs`` is the contiguity in memory of the pieces ("whole", "long" or
        "short"), empty for a mean. It makes a difference only if it was measured.
        """
        group = tuple(sorted(axes))
        table = self._table(kind, group, bytes_, runs)
        if table is None:
            if group not in self._spans:
                self._spans[group] = spans(self.cluster, self.mesh, group)
            direct = collective_seconds(kind, self._spans[group], bytes_)
            if kind != "alltoall":  # formulas describe other kinds as hierarchies
                return direct
        else:
            if table.extrapolates(bytes_):
                self.extrapolated[kind] = table.bytes[-1]
            direct = self._measured_seconds(table, bytes_)
        hierarchical = self._hierarchical_seconds(kind, group, bytes_)
        return direct if hierarchical is None else min(direct, hierarchical)

    def goes_in_hierarchy(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> bool:
        """Whether a collective is faster as a hierarchy (`tensoropt.cost.hierarchy`) than directly.

        The innermost links are taken as those within machines. Without measurements, formulas
        describe reductions and gathers as hierarchies (`tensoropt.cost.collective_time`), so these
        are hierarchical from a fixed size on.
        """
        group = tuple(sorted(axes))
        hierarchical = self._hierarchical_seconds(kind, group, bytes_)
        if hierarchical is None:
            return False
        table = self._table(kind, group, bytes_)
        if table is not None:
            return hierarchical < self._measured_seconds(table, bytes_)
        if kind == "alltoall":
            levels = spans(self.cluster, self.mesh, group)
            return hierarchical < collective_seconds(kind, levels, bytes_)
        return large_ones(kind, group, bytes_)

    @property
    def overlaps_across(self) -> bool:
        """Whether devices compute while collectives run between machines."""
        return any(level.processor_bytes_per_second for level in self.cluster.levels[:-1])

    def is_across_overlapped(self, axes: tuple[int, ...]) -> bool:
        """Whether groups along ``axes`` have one member on a machine, and compute beside."""
        innermost = len(self.cluster.levels) - 1
        return all(
            level < innermost and self.cluster.levels[level].processor_bytes_per_second
            for level in (self._levels[axis] for axis in axes)
        )

    def beside_computation(self, kind: str, axes: tuple[int, ...], bytes_: int) -> Overlapped:
        """Return the part of a collective that runs between machines beside computation."""
        innermost = len(self.cluster.levels) - 1
        group = tuple(sorted(axes))
        across = tuple(axis for axis in group if self._levels[axis] != innermost)
        if kind in LOCAL_KINDS or not across or not self.is_across_overlapped(across):
            return Overlapped(0.0, 0.0)
        calls = [(kind, group, bytes_)]
        if across != group and self.goes_in_hierarchy(kind, group, bytes_):
            inside = self.mesh.pieces([axis for axis in group if axis not in across])
            pieces = parts(kind, bytes_, inside, self.mesh.pieces(across))
            calls = [(name, across, size) for name, within, size in pieces if not within]
        rates = (self.cluster.levels[self._levels[a]].processor_bytes_per_second for a in across)
        rate = min(rate for rate in rates if rate is not None)
        moved = sum(
            collective_seconds(name, [Span(self.mesh.pieces(ranks), 1, 0.0, 1.0, 1.0)], size)
            for name, ranks, size in calls
        )
        return Overlapped(sum(self.network_seconds(*call) for call in calls), moved / rate)

    def is_within_machines(self, axes: tuple[int, ...]) -> bool:
        """Whether each group along ``axes`` is on one machine, whose links are the innermost."""
        innermost = len(self.cluster.levels) - 1
        return all(self._levels[axis] == innermost for axis in axes)

    def _hierarchical_seconds(self, kind: str, axes: tuple[int, ...], bytes_: int) -> float | None:
        """Return the time of a hierarchical collective.

        None if the collective cannot be hierarchical, or if it was measured as a whole and some of
        its steps were not.
        """
        innermost = len(self.cluster.levels) - 1
        inside = tuple(axis for axis in axes if self._levels[axis] == innermost)
        across = tuple(axis for axis in axes if self._levels[axis] != innermost)
        if not inside or not across:
            return None
        steps = [
            (name, inside if within else across, size)
            for name, within, size in parts(
                kind, bytes_, self.mesh.pieces(inside), self.mesh.pieces(across)
            )
        ]
        measured = [self._table(*step) is not None for step in steps]
        if not steps or (self._table(kind, axes, bytes_) is not None and not all(measured)):
            return None
        return sum(self.network_seconds(*step) for step in steps)

    def _measured_seconds(self, table: BandwidthTable, bytes_: int) -> float:
        """Return the measured seconds of a collective.

        An all-reduce is a reduce-scatter and an all-gather in one, so it takes at most as long as
        both. Measured times can say otherwise: links that buffer the beginning of each collective
        do that twice for two. With these a resharding would be in two collectives, which share no
        bucket and hide less.
        """
        nanoseconds = table.nanoseconds_of(bytes_)
        if table.kind != "allreduce":
            return nanoseconds / 1e9
        scatter, gather = (
            self._tables.get((kind, table.axes)) for kind in ("reduce_scatter", "allgather")
        )
        if scatter is not None and gather is not None:
            piece = -(-bytes_ // self.mesh.pieces(table.axes))
            both = scatter.nanoseconds_of(bytes_) + gather.nanoseconds_of(piece)
            nanoseconds = min(nanoseconds, both)
        return nanoseconds / 1e9

    def _table(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> BandwidthTable | None:
        """Return the measured table of a collective over ascending axes, None if there is none."""
        if not self._tables:
            return None
        table = self._tables.get((f"{kind} {runs}", axes))
        if table is None or bytes_ < table.bytes[0]:
            table = self._tables.get((kind, axes))
        return table

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Return the time of an operator: see `CostModel` and `tensoropt.cost.operator_time`."""
        return roofline_time(self.cluster.device, work).at_speed(self._speed(work))

    def _speed(self, work: OperatorWork) -> float:
        """Return the speed of the device that does the work."""
        return self._speeds[work.rank] if isinstance(work, WorkOfRank) else self._slowest

    def operator_memory(self, footprint: Footprint, /) -> int:
        """Return the memory of an operator: see `CostModel` and `tensoropt.cost.memory`."""
        return self._memory(footprint)

    def step_nanoseconds(self) -> int:
        """Return the overhead of a step: see `CostModel`."""
        return round(self.cluster.step_overhead_seconds * 1e9)

    def _copy_nanoseconds(self, bytes_: int) -> int:
        """Return the time of a local copy, which reads and writes every byte."""
        if bytes_ < 0:
            raise OptionError(f"a copy moves at least 0 bytes. Got {bytes_}.")
        device = self.cluster.device
        traffic = 2 * bytes_ / device.memory_bandwidth_bytes_per_second
        return whole_nanoseconds((device.operator_overhead_seconds + traffic) / self._slowest)


class MeasuredCostModel(ClusterCostModel):
    """Costs from measurements: times of operators, and the cluster's tables of collectives."""

    __slots__ = ("_operators",)

    times_by_amounts: ClassVar[bool] = False

    def __init__(
        self, cluster: Cluster, mesh: Mesh, operators: OperatorTimes, memory: str = "paper"
    ) -> None:
        super().__init__(cluster, mesh, memory)
        self._operators = operators

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Return the time of an operator: see `tensoropt.cost.measured_operator_times`."""
        return self._operators.time(work).at_speed(self._speed(work))
