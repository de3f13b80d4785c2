"""A table of a plan's operators."""

from __future__ import annotations

from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import NAMES_ONLY
from tensoropt.report.text_table import Report, table

__all__ = ["plan_table"]

_KEPT = {"both": "", "before": " (kept before)", "after": " (kept after)"} | {
    "recomputed": " (recomputed)"
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
    step = [f"{plan.predicted_nanoseconds / 1e3:,.1f}", f"{plan.memory_bytes / 2**10:,.1f}"]
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
