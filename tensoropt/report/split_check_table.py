"""A preflight check as a table."""

from __future__ import annotations

from tensoropt.planner.split_check import Check
from tensoropt.report.text_table import table

__all__ = ["check_table"]


def check_table(check: Check) -> str:
    """One line per operator that cannot be split, the slowest first; the last line sums them up.

    Each with its time on one device, forward and backward, its share of the step's, and the
    memory of its outputs, which every device holds whole. Above 1 % of the step it has a ``!``.
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
    text = table(header, rows, [False, False, False, True, True, True, False])
    return (f"{text}\n\n" if rows else "") + str(check)
