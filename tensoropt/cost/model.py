"""The interface through which the search asks what things cost, and its form for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

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
from tensoropt.cost.memory import Footprint, MemoryUse, memory_model
from tensoropt.cost.operator_time import OperatorTime, OperatorWork, roofline_time
from tensoropt.errors import OptionError
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.step import LOCAL_KINDS

__all__ = ["ClusterCostModel", "CostModel", "MeasuredCostModel"]


class CostModel(Protocol):
    """Costs on one mesh of devices (TensorOpt, section 2.1, equations 1 and 2).

    A model is pure: the same question has the same answer for as long as it lives. Times are
    whole nanoseconds, at least 1; memory is whole bytes.
    """

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """Time of one collective, or local step of a resharding, on all groups along ``axes``.

        Args:
            kind: "allgather", "allreduce", "alltoall", "broadcast", "exchange",
                "reduce_scatter"; or local, "slice" and "mask".
            axes: the mesh axes of the groups, whose order has no effect.
            bytes_: that a device holds before; after, for local steps.
        """
        ...

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Time of one operator on one device, forward and backward."""
        ...

    def operator_memory(self, footprint: Footprint, /) -> MemoryUse:
        """Memory of one operator on one device."""
        ...

    def step_nanoseconds(self) -> int:
        """What one step takes besides operators and collectives, at least 0."""
        ...


class ClusterCostModel:
    """Costs from a cluster's description: what it has measured, else its links and rates.

    Its `collective_nanoseconds` is a `tensoropt.parallel.resharding.Price`.

    Args:
        cluster: the links and the device.
        mesh: of the cluster, such as ``cluster.mesh(devices)``.
        memory: name of the memory model.

    Attributes:
        extrapolated: collectives asked for beyond the largest size measured, and that size.

    Raises:
        LayoutError: if the mesh is none of the cluster's.
        OptionError: if there is no such memory model.
    """

    __slots__ = (
        "_ascending",
        "_known",
        "_levels",
        "_memory",
        "_spans",
        "_tables",
        "cluster",
        "extrapolated",
        "mesh",
    )

    times_by_amounts: ClassVar[bool] = True
    """Whether an operator's time follows from its family, dtype, flops, bytes and number of
    differentiated inputs alone, so that works need not say more."""

    def __init__(self, cluster: Cluster, mesh: Mesh, memory: str = "paper") -> None:
        self.cluster = cluster
        self.mesh = mesh
        self._memory = memory_model(memory)
        self._tables = {
            (table.kind, table.axes): table for table in cluster.measured if table.mesh == mesh.axes
        }
        self.extrapolated: dict[str, int] = {}
        self._known: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._ascending: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._levels = axis_levels(cluster, mesh)
        self._spans: dict[tuple[int, ...], Sequence[Span]] = {}
        for axis in range(len(mesh.axes)):
            self._spans[(axis,)] = spans(cluster, mesh, (axis,))

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """Time of a collective: see `CostModel` and `tensoropt.cost.collective_time`."""
        if kind in LOCAL_KINDS:
            return self._copy_nanoseconds(bytes_)
        group = self._ascending.get(axes)
        if group is None:  # the order of axes has no effect
            group = self._ascending[axes] = tuple(sorted(axes))
        key = kind, group, bytes_
        known = self._known.get(key)
        if known is None:
            overhead = self.cluster.collective_overhead_seconds
            known = whole_nanoseconds(overhead + self.network_seconds(kind, group, bytes_))
            self._known[key] = known
        return known

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """Of a collective's time that from when the last device has arrived at it, by the
        faster way (`goes_in_hierarchy`).

        ``runs`` says how its pieces lie in memory ("whole", "long" or "short"), empty for a mean;
        it counts where it was measured.
        """
        group = tuple(sorted(axes))
        table = self._table(kind, group, bytes_, runs)
        if table is None:
            if axes not in self._spans:
                self._spans[axes] = spans(self.cluster, self.mesh, axes)
            return collective_seconds(kind, self._spans[axes], bytes_)
        if table.extrapolates(bytes_):
            self.extrapolated[kind] = table.bytes[-1]
        whole = table.nanoseconds_of(bytes_) / 1e9
        in_parts = self._in_hierarchy_seconds(kind, group, bytes_)
        return whole if in_parts is None else min(whole, in_parts)

    def goes_in_hierarchy(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> bool:
        """Whether a collective is faster within machines and across them (`cost.hierarchy`) than in
        one; the innermost links are those within machines. What links say of reductions and
        gathers is of hierarchies (`cost.collective_time`), which go so from a size on.
        """
        group = tuple(sorted(axes))
        in_parts = self._in_hierarchy_seconds(kind, group, bytes_)
        if in_parts is None:
            return False
        table = self._table(kind, group, bytes_)
        if table is not None:
            return in_parts < table.nanoseconds_of(bytes_) / 1e9
        if kind == "alltoall":
            levels = spans(self.cluster, self.mesh, group)
            return in_parts < collective_seconds(kind, levels, bytes_)
        return large_ones(kind, group, bytes_)

    def is_within_machines(self, axes: tuple[int, ...]) -> bool:
        """Whether groups along axes are each on one machine, whose links are the innermost."""
        innermost = len(self.cluster.levels) - 1
        return all(self._levels[axis] == innermost for axis in axes)

    def _in_hierarchy_seconds(self, kind: str, axes: tuple[int, ...], bytes_: int) -> float | None:
        """Time of the parts; None where there are none, or not all measured though the whole is."""
        innermost = len(self.cluster.levels) - 1
        inside = tuple(axis for axis in axes if self._levels[axis] == innermost)
        across = tuple(axis for axis in axes if self._levels[axis] != innermost)
        if not inside or not across:
            return None
        found = parts(kind, bytes_, self.mesh.pieces(inside), self.mesh.pieces(across))
        moves = [(name, inside if within else across, size) for name, within, size in found]
        measured = [self._table(*move) is not None for move in moves]
        if not moves or (self._table(kind, axes, bytes_) is not None and not all(measured)):
            return None
        return sum(self.network_seconds(*move) for move in moves)

    def _table(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> BandwidthTable | None:
        """What was measured of a collective over ascending axes."""
        if not self._tables:
            return None
        table = self._tables.get((f"{kind} {runs}", axes))
        if table is None or bytes_ < table.bytes[0]:
            table = self._tables.get((kind, axes))
        return table

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Time of an operator: see `CostModel` and `tensoropt.cost.operator_time`."""
        return roofline_time(self.cluster.device, work)

    def operator_memory(self, footprint: Footprint, /) -> MemoryUse:
        """Memory of an operator: see `CostModel` and `tensoropt.cost.memory`."""
        return self._memory(footprint)

    def step_nanoseconds(self) -> int:
        """Overhead of a step: see `CostModel`."""
        return round(self.cluster.step_overhead_seconds * 1e9)

    def _copy_nanoseconds(self, bytes_: int) -> int:
        """A local copy: every byte is read and written."""
        if bytes_ < 0:
            raise OptionError(f"a copy moves a number of bytes. Got {bytes_}.")
        device = self.cluster.device
        traffic = 2 * bytes_ / device.memory_bandwidth_bytes_per_second
        return whole_nanoseconds(device.operator_overhead_seconds + traffic)


class MeasuredCostModel(ClusterCostModel):
    """Costs as measured: operators from their times, collectives from the cluster's tables.

    Args:
        cluster: with what was measured of its collectives.
        mesh: of the cluster.
        operators: measured operators.
        memory: name of the memory model.
    """

    __slots__ = ("_operators",)

    times_by_amounts: ClassVar[bool] = False

    def __init__(
        self, cluster: Cluster, mesh: Mesh, operators: OperatorTimes, memory: str = "paper"
    ) -> None:
        super().__init__(cluster, mesh, memory)
        self._operators = operators

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Time of an operator: see `CostModel` and `tensoropt.cost.measured_operator_times`."""
        return self._operators.time(work)
