"""Tables of a plan's operators, stages and substitutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import NAMES_ONLY, OperatorPlan
from tensoropt.plan.point_peak import PeakSource
from tensoropt.planner.prices.peak import evenly
from tensoropt.report.text_table import Report, table
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.view import view_of

__all__ = ["frontier_table", "plan_table", "rewrite_table", "stage_table"]

_KEPT = {"both": "", "before": " (kept before)", "after": " (kept after)"} | {
    "recomputed": " (recomputed)"
}
_STATE = ("Var", "ResourceApply", "Apply", "Assign")
"""Prefixes of operator types that hold or change state; they do not show where a stage begins."""
_SCHEDULES = {
    "1f1b": "1F1B: a stage goes back with a microbatch as soon as it can",
    "gpipe": "GPipe: all microbatches go forward before the first goes back",
    "side_by_side": "side by side: a stage waits for other stages only where it reads from them",
}


def plan_table(plan: Plan) -> Report:
    """One line per operator: its mesh and maps (the paper's notation), time and memory.

    Behind the maps are the copies of an output that are kept for the backward pass, unless all are.

    Operators that only name or group other operators' outputs are left out. Times are the
    operator's own, forward and backward. Below them are the time of resharding, the search's sum of
    both, and the predicted time of the step. In a pipeline, whose stages work at the same time,
    each operator has its stage; the step is longer than any stage and shorter than their sum.
    """
    stage_of = plan.stage_of
    rows = [
        [
            *([str(stage_of[operator.name])] if stage_of else []),
            operator.name,
            operator.type,
            operator.mesh,
            f"{' '.join([*operator.inputs, '->', operator.output])}{_KEPT[operator.kept]}",
            f"{operator.time_nanoseconds / 1e3:,.1f}",
            f"{operator.memory_bytes / 2**10:,.1f}",
        ]
        for operator in plan.operators
        if operator.type not in NAMES_ONLY
    ]
    header = ["operator", "type", "mesh", "maps", "time (us)", "memory (KiB)"]
    right = [False, False, False, False, True, True]
    step = [f"{plan.executed_nanoseconds / 1e3:,.1f}", f"{plan.memory_bytes / 2**10:,.1f}"]
    total = f"{plan.time_nanoseconds / 1e3:,.1f}"
    if stage_of:
        rows.sort(key=lambda row: int(row[0]))
        rows.append(["", "search's sum", "", "", "", total, ""])
        rows.append(["", "step (predicted)", "", "", "", *step])
        return table(["stage", *header], rows, [False, *right])
    computing = sum(operator.time_nanoseconds for operator in plan.operators)
    resharding = plan.time_nanoseconds - computing
    rows.append(["resharding", "", "", "", f"{resharding / 1e3:,.1f}", ""])
    rows.append(["search's sum", "", "", "", total, ""])
    rows.append(["step (predicted)", "", "", "", *step])
    return table(header, rows, right)


def rewrite_table(plan: Plan) -> Report:
    """One line per substitution: its equation, the properties that prove it, the number of its
    places and the first place."""
    known = substitutions_by_name()
    first = {}
    for rewrite in reversed(plan.rewrites):
        first[rewrite.substitution] = rewrite.outputs[0]
    rows = []
    for name, count in Counter(rewrite.substitution for rewrite in plan.rewrites).items():
        substitution = known.get(name)
        says = "unknown to this version" if substitution is None else str(substitution)
        proof = "" if substitution is None else ", ".join(substitution.proof)
        rows.append([name, says, proof, str(count), first[name]])
    header = ["substitution", "says", "proven from", "places", "first at"]
    return table(header, rows, [False, False, False, True, False])


def stage_table(plan: Plan) -> Report:
    """One line per stage: its devices, its first operator, and its predicted times and memory.

    Times are those of one microbatch, forward and back, including transfers to the neighbouring
    stages, and of the work done once per step. A stage waits for the rest of the step.
    """
    step = plan.predicted_step_seconds * 1e9
    peaks = any(stage.peak_bytes is not None for stage in plan.stages)
    operators = {operator.name: operator for operator in plan.operators}
    rows = []
    for number, stage in enumerate(plan.stages):
        members = [operators[name] for name in stage.operators if name in operators]
        waits = max(0.0, 1 - stage.busy_nanoseconds(plan.microbatches) / max(step, 1))
        row = [
            str(number),
            _ranges(plan.devices_of_stage(number)),
            next((member.name for member in members if _computes(member)), ""),
            str(sum(map(_computes, members))),
            f"{stage.forward_nanoseconds / 1e3:,.1f}",
            f"{stage.backward_nanoseconds / 1e3:,.1f}",
            f"{stage.once_nanoseconds / 1e3:,.1f}",
            f"{100 * waits:.0f} %",
            f"{stage.memory_bytes / 2**20:,.2f}",
        ]
        if peaks:
            row.append("-" if stage.peak_bytes is None else f"{stage.peak_bytes / 2**20:,.2f}")
        rows.append(row)
    header = ["stage", "devices", "begins with", "operators", "forward (us)", "backward (us)"]
    header += ["once (us)", "waits", "memory (MiB)", *(["peak (MiB)"] if peaks else [])]
    right = [False, False, False, *[True] * (len(header) - 3)]
    schedule = "" if plan.schedule is None else _SCHEDULES[plan.schedule]
    if plan.schedule != "side_by_side":
        schedule = f"{plan.microbatches} microbatches a step, {schedule}"
    copies = f"{plan.copies} copies, each with its part of the examples; "
    again = [str(number) for number, stage in enumerate(plan.stages) if stage.recompute]
    kept = f"\nonly received tensors are kept, the rest recomputed, in stages {', '.join(again)}"
    return Report(
        table(header, rows, right),
        f"{copies if plan.copies > 1 else ''}{schedule}; "
        f"devices wait {100 * plan.bubble:.0f} % of the step (the bubble)"
        f"{kept if again else ''}",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in the form 0-1, 4-5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def _computes(operator: OperatorPlan) -> bool:
    return operator.type not in NAMES_ONLY and not operator.type.startswith(_STATE)


_MOST_ROWS = 24  # of the table
_BY: Mapping[PeakSource | None, str] = MappingProxyType(
    {
        "dry run": "by dry runs",
        "estimate": "estimated",
        "interpolation": "interpolated",
        None: "the search's sum",
    }
)
"""The words of a header for how the memory of all points is known."""


def frontier_table(plan: Plan) -> Report:
    """One line per point, the least memory first.

    The memory of a point is its peak per device, or the sum of its kept tensors where the peak is
    unknown; its time is the predicted step. If points differ in how their memory is
    known, each line says it; else the header does. The plan has a star, even if it is not one of
    the points. A point fits if its sum times the safety factor is within the memory limit, and its
    peak, too. A long frontier is shortened to its ends, the plan, and points at even distances. A
    point's number is its position in ``plan.frontier``, for `find_strategy(point=...)`. If points
    run the step in different ways, each line has its own.
    """
    points = [point for point in view_of(plan).frontier if point.kind in ("plan", "frontier")]
    differ = bool(plan.frontier_ways) and len({point.name for point in points}) > 1
    sources = {point.peak_source for point in points}
    unit, size = ("MiB", 2**20) if points[-1].shown_bytes >= 2**20 else ("KiB", 2**10)
    plan_place = next(place for place, point in enumerate(points) if point.kind == "plan")
    rows = []
    for place in _shown(len(points), plan_place):
        point = points[place]
        rows.append(
            [
                "*" if place == plan_place else "",
                "" if point.number is None else str(point.number),
                f"{point.shown_bytes / size:,.2f}",
                *([point.peak_source or "sum"] if len(sources) > 1 else []),
                f"{point.nanoseconds / 1e6:,.3f}",
                "yes" if point.fits else "no",
                *([point.name] if differ else []),
            ]
        )
    left_out = len(points) - len(rows)
    memory = f"memory ({unit})" if None in sources else f"peak ({unit})"
    if len(sources) == 1:
        memory = f"{memory[:-1]}, {_BY[sources.pop()]})"
        header, right = ["plan", "point", memory], [False, True, True]
    else:
        header, right = ["plan", "point", memory, "by"], [False, True, True, False]
    header += ["step (ms)", "fits", *(["way"] if differ else [])]
    right += [True, False, *([False] if differ else [])]
    more = [f"({left_out} of {len(points)} points left out)"] if left_out else []
    return Report(table(header, rows, right), *more)


def _shown(count: int, plan_place: int) -> list[int]:
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({*evenly(count, _MOST_ROWS - 1), plan_place})
