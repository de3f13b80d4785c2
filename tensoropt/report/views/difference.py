"""A table of the difference of two plans."""

from __future__ import annotations

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory, time
from tensoropt.view.difference import PlanDifference

__all__ = ["difference_table"]


def difference_table(found: PlanDifference) -> Report:
    """The step and the memory of both plans, and a line for like layers with the same change.

    Times are those of operators and communication. Layers that both plans divide alike have one
    division.
    """
    old, new = found.before, found.after
    head = [
        f"step    {time(old.step_nanoseconds)} -> {time(new.step_nanoseconds)}",
        f"memory  {memory(old.memory_bytes)} -> {memory(new.memory_bytes)} (the search's sums)",
        f"way     {old.way} on {old.devices} -> {new.way} on {new.devices}",
    ]
    rows = [
        [
            each.name,
            "" if len(each.names) == 1 else f"x{len(each.names)}",
            each.before or "no such layer",
            "alike" if each.is_divided_alike else each.after or "no such layer",
            f"{each.before_nanoseconds / 1e6:,.3f}",
            f"{each.after_nanoseconds / 1e6:,.3f}",
            f"{(each.after_nanoseconds - each.before_nanoseconds) / 1e6:+,.3f}",
        ]
        for each in found.layers
    ]
    header = ["layer", "", "before", "after", "before (ms)", "after (ms)", "change (ms)"]
    right = [False, True, False, False, True, True, True]
    return Report(*head, "", table(header, rows, right))
