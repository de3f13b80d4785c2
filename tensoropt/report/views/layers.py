"""A table of a plan's layers."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.report.text_table import Report, table
from tensoropt.view import PlanView
from tensoropt.view.data.layers import LayerView

__all__ = ["layer_columns", "layer_table"]


def layer_table(view: PlanView, layers: Sequence[LayerView] | None = None) -> Report:
    """One line per row of like layers: how many, their division in words, and their costs.

    Times are those of all layers of the row, forward and backward; network is the communication
    of which the row is the source. The share is of the predicted step; shares may exceed it
    together, because communication runs beside computation. Operators as ranks traced them have a
    column if there are any.

    Args:
        view: a plan's view.
        layers: the rows to show; by default all, in the order of the step.
    """
    return table(*layer_columns(view, view.layers if layers is None else layers))


def layer_columns(
    view: PlanView, layers: Sequence[LayerView]
) -> tuple[list[str], list[list[str]], list[bool]]:
    """The titles, the entries, and whether a column is aligned to the right."""
    has_measured = any(row.measured_nanoseconds is not None for row in view.layers)
    rows = [
        [
            *([str(row.stage)] if view.stages else []),
            row.name,
            "" if row.count == 1 else f"x{row.count}",
            row.words,
            f"{row.operators_nanoseconds / 1e6:,.3f}",
            *([_measured(row)] if has_measured else []),
            f"{row.network_nanoseconds / 1e6:,.3f}",
            f"{row.nanoseconds / max(view.summary.step_nanoseconds, 1):.0%}",
            f"{row.weight_bytes / 2**20:,.2f}",
        ]
        for row in layers
    ]
    header = ["layer", "", "divided", "operators (ms)", "network (ms)", "of step", "weights (MiB)"]
    right = [False, True, False, True, True, True, True]
    if has_measured:
        header.insert(4, "measured (ms)")
        right.insert(4, True)
    if view.stages:
        header, right = ["stage", *header], [True, *right]
    return header, rows, right


def _measured(row: LayerView) -> str:
    return "" if row.measured_nanoseconds is None else f"{row.measured_nanoseconds / 1e6:,.3f}"
