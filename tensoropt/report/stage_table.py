"""The stages of a plan's pipeline, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.plan import Plan
from tensoropt.plan.plan import NAMES_ONLY, OperatorPlan
from tensoropt.report.text_table import table

__all__ = ["stage_table"]

_STATE = ("Var", "ResourceApply", "Apply", "Assign")
"""How types begin that hold or change state, which say little of where a stage begins."""
_SCHEDULES = {
    "1f1b": "1F1B: a stage goes back with a microbatch as soon as it can",
    "gpipe": "GPipe: all microbatches go forward before the first goes back",
    "side_by_side": "side by side: each stage waits for others only where it reads them",
}


def stage_table(plan: Plan) -> str:
    """One line per stage: its devices, where it begins, and what it is predicted to take.

    Times are a microbatch's, forward and back with what is sent to the next stage and the last one,
    and what comes once a step. What is left of the step a stage waits for others.
    """
    step = plan.predicted_step_seconds * 1e9
    peaks = any(stage.peak_bytes is not None for stage in plan.stages)
    of = {operator.name: operator for operator in plan.operators}
    rows = []
    for number, stage in enumerate(plan.stages):
        own = [of[name] for name in stage.operators if name in of]
        waits = max(0.0, 1 - stage.busy_nanoseconds(plan.microbatches) / max(step, 1))
        row = [
            str(number),
            _ranges(plan.devices_of_stage(number)),
            next((each.name for each in own if _computes(each)), ""),
            str(sum(map(_computes, own))),
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
    kept = f"\nkept is what is received, and all else computed again, in stages {', '.join(again)}"
    return (
        f"{table(header, rows, right)}\n"
        f"{copies if plan.copies > 1 else ''}{schedule}; "
        f"devices wait {100 * plan.bubble:.0f} % of it (the bubble)"
        f"{kept if again else ''}"
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, as 0-1, 4-5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _computes(operator: OperatorPlan) -> bool:
    return operator.type not in NAMES_ONLY and not operator.type.startswith(_STATE)
