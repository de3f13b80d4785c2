"""Groups of devices, and the division of a layer's work over them, as data and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from tensoropt.cost.cluster import Cluster
from tensoropt.parallel.mesh import levels_of_axes
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.operator_plan import OperatorPlan
from tensoropt.plan.plan import Plan
from tensoropt.planner.fixed.kept_pins import groups_of_levels
from tensoropt.view.data.layers import Replicated, Split
from tensoropt.view.data.summary import ClusterLevel

__all__ = [
    "Devices",
    "devices_by_stage",
    "devices_of_plan",
    "in_words",
    "merged",
    "replicated_of",
    "splits_of",
]


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


_NOTABLE = 0.25
"""The least share of a layer's time for a dimension that only some of its operators divide."""
_REPEATED = 0.5
"""The least share of a layer's time that devices repeat for the words to say so."""
_NOT_WORTH = "no faster plan was found that divides it further"
_HELD = "no faster plan was found that stores them in more pieces"


def splits_of(operators: Sequence[OperatorPlan], devices: Devices) -> tuple[Split, ...]:
    """The division of some operators, the slowest links first.

    Along each mesh axis the dimension counts that most of the operators' time divides; or two,
    in the order of the operators, if another one has a notable share. Axes of one level with the
    same dimension are one entry, and so are all axes if they have the same dimension.
    """
    axes_of: dict[tuple[str, int], list[int]] = {}
    for axis, level in enumerate(devices.level_of):
        axes_of.setdefault((_dimension(operators, axis), level), []).append(axis)
    dimensions = {dimension for dimension, _ in axes_of}
    if len(dimensions) == 1 and devices.axes:
        (dimension,), all_axes = dimensions, range(len(devices.axes))
        return (Split(dimension, devices.count, devices.over(all_axes), 0),)
    return tuple(
        Split(dimension, devices.pieces(axes), devices.of_level(level), level)
        for (dimension, level), axes in axes_of.items()
    )


def _dimension(operators: Iterable[OperatorPlan], axis: int) -> str:
    """The dimension, or two, that operators divide along an axis; empty if they divide none."""
    time = Counter[str]()
    for operator in operators:
        time[_along(operator, axis)] += max(operator.time_nanoseconds, 1)
    total = time.total()
    if time[""] >= _REPEATED * total:
        return ""
    del time[""]
    most = [name for name, share in time.most_common(2) if share >= _NOTABLE * total]
    return " then ".join(name for name in time if name in most)


def _along(operator: OperatorPlan, axis: int) -> str:
    """The name of the dimension that an operator divides along an axis; empty if none."""
    for number, axes in enumerate(operator.splits):
        if axis in axes:
            return operator.dimensions[number].name
    return ""


def in_words(splits: Sequence[Split], devices: Devices) -> str:
    """A division in one line."""
    if devices.count == 1:
        return "on one device"
    if all(not split.dimension for split in splits):
        return f"the whole on each of {devices.count} devices"
    words, repeated = [], ""
    for _, group in groupby(splits, lambda split: split.level):
        of_level = list(group)
        divided = [split for split in of_level if split.dimension]
        if not divided:
            repeated = f"; {of_level[0].over} repeat it"
        elif len(of_level) == 1:
            words.append(f"{divided[0].dimension} over {divided[0].over}")
        else:
            parts = [f"{split.dimension} in {split.pieces} parts" for split in divided]
            same = [split.pieces for split in of_level if not split.dimension]
            each = f", each part on {same[0]}" if same else ""
            words.append(f"{' and '.join(parts)} over {divided[0].over}{each}")
    return ", ".join(words) + repeated


def replicated_of(operators: Sequence[OperatorPlan], devices: Devices) -> tuple[Replicated, ...]:
    """The work that devices repeat, and the weights that several devices hold."""
    found = []
    for operator in operators:
        used = devices.pieces([axis for axes in operator.splits for axis in axes])
        copies = devices.count // used
        if copies == 1:
            continue
        name = (operator.name,)
        if operator.variable == "weights":
            size = operator.memory_bytes
            found.append(Replicated("weights", name, copies, _HELD, 0, size))
        elif operator.time_nanoseconds and not operator.variable:
            time = operator.time_nanoseconds
            found.append(Replicated("work", name, copies, _why_repeated(operator), time, 0))
    return merged(found)


def _why_repeated(operator: OperatorPlan) -> str:
    largest = max((each.extent for each in operator.dimensions), default=0)
    return "it has one element" if largest == 1 else operator.unsplittable or _NOT_WORTH


def merged(found: Iterable[Replicated]) -> tuple[Replicated, ...]:
    """Entries of the same kind and reason as one, the largest first."""
    groups: dict[tuple[str, int, str], list[Replicated]] = {}
    for each in found:
        groups.setdefault((each.what, each.copies, each.why), []).append(each)
    rows = [
        Replicated(
            group[0].what,
            tuple(name for each in group for name in each.operators),
            group[0].copies,
            group[0].why,
            sum(each.nanoseconds for each in group),
            sum(each.bytes for each in group),
        )
        for group in groups.values()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nanoseconds, -row.bytes)))
