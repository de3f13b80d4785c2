"""Groups of devices in words: the machines, and the devices of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from tensoropt.cost.cluster import Cluster
from tensoropt.parallel.mesh import levels_of_axes
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.plan import Plan
from tensoropt.planner.fixed.kept_pins import groups_of_levels
from tensoropt.view.data.summary import ClusterLevel

__all__ = ["Devices", "devices_by_stage", "devices_of_plan"]


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a plan or of a stage, with the levels of their links.

    Attributes:
        levels: the levels with more than one group, the outermost first.
        axes: sizes of the mesh axes, slowest link first.
        level_of: the number of each axis's level in ``levels``.
    """

    levels: tuple[ClusterLevel, ...]
    axes: tuple[int, ...]
    level_of: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of devices."""
        return prod(self.axes)

    def pieces(self, axes: Sequence[int]) -> int:
        """The number of devices along axes."""
        return prod(self.axes[axis] for axis in axes)

    def by_level(self, axes: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Axes by their level, the outermost first."""
        ascending = sorted(axes)
        return [(n, list(of)) for n, of in groupby(ascending, self.level_of.__getitem__)]

    def over(self, axes: Sequence[int]) -> str:
        """The devices along axes in words, such as "the 8 devices of each machine"."""
        if not axes:
            return "each device alone"
        pieces, parts = self.pieces(axes), self.by_level(axes)
        if pieces == self.count:
            return "both devices" if pieces == 2 else f"all {devices_of(pieces)}"
        if len(parts) > 1:
            return f"groups of {pieces} devices across {self.levels[parts[0][0]].name}s"
        level = parts[0][0]
        if pieces == self.levels[level].count:
            return self.of_level(level)
        return f"groups of {pieces} of {self.of_level(level)}"

    def of_level(self, level: int) -> str:
        """All groups of a level in words."""
        name, count = self.levels[level].name, self.levels[level].count
        within = f" of each {self.levels[level - 1].name}" if level else ""
        return f"the {count} {name}s{within}"


def _levels_of(cluster: Cluster, counts: Sequence[int]) -> tuple[ClusterLevel, ...]:
    """The levels with more than one group; a single device is a level of its own."""
    levels = [
        ClusterLevel(level.name, count)
        for level, count in zip(cluster.levels, counts, strict=True)
        if count > 1
    ]
    return tuple(levels or [ClusterLevel(cluster.levels[-1].name, 1)])


def devices_of_plan(plan: Plan, stage: int | None = None) -> Devices:
    """The devices of a plan, or of one of its stages in all copies."""
    axes = plan.mesh_axes if stage is None else plan.stages[stage].mesh_axes
    levels = _levels_of(plan.cluster, groups_of_levels(plan, stage))
    return Devices(levels, axes, levels_of_axes(axes, [level.count for level in levels]))


def devices_by_stage(plan: Plan) -> dict[int | None, Devices]:
    """The devices of each stage; without stages those of the plan, for None."""
    stages = range(len(plan.stages)) if plan.stages else [None]
    return {stage: devices_of_plan(plan, stage) for stage in stages}
