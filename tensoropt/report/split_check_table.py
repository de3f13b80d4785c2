"""A table of a preflight check."""

from __future__ import annotations

from tensoropt.planner.split_check import Check
from tensoropt.report.text_table import Report, table

__all__ = ["check_table"]


def check_table(check: Check) -> Report:
    """One line per operator that cannot be split, the slowest first, and a last line with the sum.

    A line has the operator's time on one device, forward and backward, its share of the step's
    time, and the memory of its outputs, which every device holds whole. An operator above 1 % of
    the step has a ``!``.
    """
    rows = [
        [
            "!" if check.is_marked(operator) else "",
            operator.name,
            operator.type,
            f"{operator.time_nanoseconds / 1e3:,.1f}",
            f"{check.share(operator):.2%}",
            f"{operator.output_bytes / 2**10:,.1f}",
            "; ".join(operator.reasons),
        ]
        for operator in check.unsplit
    ]
    header = ["", "operator", "type", "time (us)", "of step", "outputs (KiB)", "why not split"]
    unsplit = table(header, rows, [False, False, False, True, True, True, False])
    return Report(unsplit, "", str(check)) if rows else Report(str(check))
