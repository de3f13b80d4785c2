"""A table of what several devices do or hold alike, with the reasons."""

from __future__ import annotations

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory, plural, time
from tensoropt.view import PlanView
from tensoropt.view.division import merged

__all__ = ["replicated_table"]


def replicated_table(view: PlanView) -> Report:
    """One line for work, or weights, that as many devices repeat for the same reason."""
    found = merged(each for row in view.layers for each in row.replicated)
    if not found:
        return Report("nothing: devices divide all work and all weights")
    layers = {name: row.name for row in view.layers for name in row.operators}
    rows = [
        [
            each.what,
            str(each.copies),
            plural(len(each.operators), "operator" if each.what == "work" else "variable"),
            plural(len({layers[name] for name in each.operators}), "row"),
            time(each.nanoseconds) if each.what == "work" else memory(each.bytes),
            each.why,
        ]
        for each in found
    ]
    header = ["what", "devices", "how many", "of layers", "costs", "why"]
    return table(header, rows, [False, True, True, True, True, False])
