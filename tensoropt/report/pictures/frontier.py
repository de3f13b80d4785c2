"""The frontier of memory and time, with the plan, other strategies and the limit of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.report.pictures.canvas import COLOURS, GREY, log_if_wide
from tensoropt.report.views.amounts import memory, plural, time
from tensoropt.view import PlanView
from tensoropt.view.data.plan_view import PointView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_frontier"]

_MEBI, _MILLI = 2**20, 1e6
_FAR = 2
"""A limit above this multiple of the largest memory in the picture does not widen the picture."""
_SUMS = "memory of a device (MiB, the search's sum)"
"""The name of the axis where no peak is known."""
_OTHERS = ("D", "^", "v", "P", "X")
"""The markers of strategies that are not on the frontier."""


def draw_frontier(axes: Axes, view: PlanView) -> None:
    """Draw points with the memory in MiB on the x-axis and the time in ms on the y-axis.

    The memory of a point is its peak; that of all points is the search's sum if no peak is known.
    The time is the predicted step.
    """
    on_frontier = [point for point in view.frontier if point.number is not None]
    (plan,) = [point for point in view.frontier if point.kind == "plan"]
    others = [p for p in view.frontier if p.kind in ("data parallelism", "other algorithm")]
    _dots(axes, [point for point in on_frontier if point.fits], ".-", COLOURS[0], "frontier")
    # Points that do not fit may lie between points that do, so no line joins them.
    _dots(axes, [point for point in on_frontier if not point.fits], ".", GREY, "does not fit")
    for number, point in enumerate(others):
        name = point.name if point.fits else f"{point.name} (does not fit)"
        axes.plot(
            *_at(point),
            marker=_OTHERS[number % len(_OTHERS)],
            linestyle="none",
            markersize=8,
            color=COLOURS[(number + 2) % len(COLOURS)],
            label=f"{name}: {_text(point)}",
        )
    axes.plot(
        *_at(plan),
        marker="*",
        linestyle="none",
        markersize=17,
        color=COLOURS[5],
        label=f"this plan: {_text(plan)}",
        zorder=5,
    )
    shown = [*on_frontier, plan, *others]
    taken = [point.shown_bytes / _MEBI for point in shown]
    limit, word = view.summary.memory_limit_bytes, "sum"
    if view.has_peaks:
        limit, word = view.summary.device_limit_bytes, "peak"
    is_far = limit is not None and limit / _MEBI > _FAR * max(taken)
    if limit is not None and not is_far:
        taken.append(limit / _MEBI)
    log_if_wide(axes, taken, [point.nanoseconds / _MILLI for point in shown])
    if limit is not None:
        _draw_limit(axes, limit, word, is_far)
    known = [point.peak_bytes is not None for point in view.frontier]
    without = "" if all(known) else ", or the search's sum where it is unknown"
    axes.set_xlabel(f"peak of memory of a device (MiB{without})" if any(known) else _SUMS)
    axes.set_ylabel("predicted step (ms)")
    count = plural(len(on_frontier), "strategy", "strategies")
    axes.set_title(f"{count}, none beaten in both memory and time")
    axes.grid(alpha=0.3, which="both")
    axes.legend(  # below, where it hides no point
        fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.5, ncols=3
    )


def _draw_limit(axes: Axes, limit_bytes: int, word: str, is_far: bool) -> None:
    """Draw the limit of memory. One that is far does not widen the axis: the legend names it."""
    seen = axes.get_xlim()
    label = f"limit of the {word}: {memory(limit_bytes)}{', far to the right' if is_far else ''}"
    axes.axvline(limit_bytes / _MEBI, color="black", linestyle="--", linewidth=1, label=label)
    if is_far:
        axes.set_xlim(seen)


def _dots(axes: Axes, points: list[PointView], style: str, colour: str, label: str) -> None:
    """Draw points, joined by a line if the style has one."""
    if points:
        axes.plot(
            *zip(*map(_at, points), strict=True),
            style,
            color=colour,
            linewidth=1,
            markersize=4,
            label=label,
        )


def _at(point: PointView) -> tuple[float, float]:
    return point.shown_bytes / _MEBI, point.nanoseconds / _MILLI


def _text(point: PointView) -> str:
    return f"{memory(point.shown_bytes)}, {time(point.nanoseconds)}"
