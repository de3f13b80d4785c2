"""The measured strategies of each model over its predicted frontier, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measured_frontier.figures import figures
from benchmarks.measured_frontier.strategies import BASELINES, Measured
from reproduction.paper.claims.evidence import TITLES
from tensoropt.report.pictures.canvas import COLOURS, GREY, log_if_wide, new_figure, save
from tensoropt.search.pareto.reduce import reduce_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_MARKERS = {"data_parallel": "D", "optcnn": "^", "tofu": "v", "mesh_tensorflow": "P"}
_PANEL = 5.5, 4.8  # inches
_MEBI = 2**20


def draw(found: Mapping[str, Sequence[Measured]], where: str, file: Path) -> None:
    """Draw a panel for each model: memory to the right, time upwards, both from measured peaks.

    The title says where the steps ran.

    Predicted costs are hollow, measured ones filled, and a grey line joins the two of a strategy. A
    line goes through the points that no other beats in predicted peak and step. Plans predict both;
    the frontier, from which the points are taken, interpolates some.
    """
    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(columns * _PANEL[0], rows * _PANEL[1] + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (model, strategies) in zip(panels, found.items(), strict=False):
        _draw_model(axes, model, strategies)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    handles: dict[str, Any] = {}
    for axes in panels[: len(found)]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=1 + columns)
    figure.suptitle(f"Predicted and measured steps on {where}")
    save(figure, file)


def _draw_model(axes: Axes, model: str, rows: Sequence[Measured]) -> None:
    points = [row for row in rows if row.point is not None]
    for row in rows:
        xs, ys = zip(_predicted(row), _measured(row), strict=True)
        axes.plot(xs, ys, color=GREY, linewidth=0.7, zorder=1)
    axes.plot(
        *zip(*map(_predicted, points), strict=True),
        "o",
        color=COLOURS[0],
        markersize=6,
        fillstyle="none",
        label="points of the frontier, predicted",
    )
    best = reduce_points(
        np.array([row.predicted_bytes for row in points]),
        np.array([round(1e6 * row.predicted_ms) for row in points]),
    )
    axes.plot(*zip(*(_predicted(points[n]) for n in best), strict=True), color=COLOURS[0])
    axes.plot(
        *zip(*map(_measured, points), strict=True),
        "o",
        color=COLOURS[5],
        markersize=6,
        label="points of the frontier, measured",
        zorder=3,
    )
    for number, (name, title) in enumerate(BASELINES.items()):
        (row,) = (each for each in rows if name in each.baselines)
        style: dict[str, Any] = {"marker": _MARKERS[name], "linestyle": "none", "markersize": 9}
        style["color"] = COLOURS[(1, 2, 3, 7)[number]]
        axes.plot(*_predicted(row), fillstyle="none", zorder=2, **style)
        axes.plot(*_measured(row), label=f"{title}, measured", zorder=4, **style)
    of_memory, of_time = zip(*map(_predicted, rows), *map(_measured, rows), strict=True)
    log_if_wide(axes, of_memory, of_time)
    told = figures(rows)
    axes.set_title(
        f"{TITLES[model]}: rank correlation {told['spearman']:.2f}\n"
        f"median errors {told['time_error']:.0%} (time), {told['peak_error']:.0%} (memory)",
        fontsize="medium",
    )
    axes.set_xlabel("peak of memory of a device (MiB)")
    axes.set_ylabel("time of a step (ms)")
    axes.grid(alpha=0.3, which="both")


def _predicted(row: Measured) -> tuple[float, float]:
    return row.predicted_bytes / _MEBI, row.predicted_ms


def _measured(row: Measured) -> tuple[float, float]:
    return row.measured_bytes / _MEBI, row.measured_ms
