"""A table of the stages of a plan's pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import NAMES_ONLY, OperatorPlan
from tensoropt.report.text_table import Report, table

__all__ = ["stage_table"]

_STATE = ("Var", "ResourceApply", "Apply", "Assign")
"""Prefixes of operator types that hold or change state; they do not show where a stage begins."""
_SCHEDULES = {
    "1f1b": "1F1B: a stage goes back with a microbatch as soon as it can",
    "gpipe": "GPipe: all microbatches go forward before the first goes back",
    "side_by_side": "side by side: a stage waits for other stages only where it reads from them",
}


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
