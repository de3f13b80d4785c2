"""The time and the cost of a step over numbers of devices, for each limit of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.report.pictures.canvas import COLOURS, GREY, new_figure
from tensoropt.report.views.amounts import memory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["profile_figure"]

_STYLES = ("o-", "s--", "^-.", "D:")


def profile_figure(profile: ParallelismProfile) -> Figure:
    """A picture of a profile: time against devices, and cost against devices if it is known.

    Cost is the price of a million samples, or the device-seconds where no price is known.
    """
    cost, label = _cost, "cost of a million samples"
    if all(_cost(point) is None for point in profile):
        cost, label = _device_seconds, "device-seconds for a million samples"
    figure = new_figure(11, 4.5)
    time_axes, cost_axes = figure.subplots(1, 2)
    _draw(time_axes, profile, _milliseconds, "time of a step (ms)")
    _draw_perfect(time_axes, profile)
    _draw(cost_axes, profile, cost, label)
    time_axes.set_title("time over devices")
    cost_axes.set_title("cost over devices")
    time_axes.legend(fontsize="small")
    return figure


def _milliseconds(point: ProfilePoint) -> float | None:
    return None if point.time_seconds is None else point.time_seconds * 1e3


def _cost(point: ProfilePoint) -> float | None:
    return point.million_samples_cost


def _device_seconds(point: ProfilePoint) -> float | None:
    return point.million_samples_device_seconds


def _draw(
    axes: Axes,
    profile: ParallelismProfile,
    value: Callable[[ProfilePoint], float | None],
    label: str,
) -> None:
    limits = dict.fromkeys(point.memory_limit_bytes for point in profile)
    for number, limit in enumerate(limits):
        known = [
            (point.devices, measure)
            for point in profile
            if point.memory_limit_bytes == limit and (measure := value(point)) is not None
        ]
        name = "own memory" if limit is None else f"limit {memory(limit)}"
        if known:
            colour = COLOURS[number % len(COLOURS)]
            style = _STYLES[number % len(_STYLES)]  # lines of several limits may coincide
            axes.plot(*zip(*known, strict=True), style, color=colour, label=name)
    devices = sorted({point.devices for point in profile})
    axes.set_xscale("log", base=2)
    axes.set_xticks(devices, [str(count) for count in devices])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("devices")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _draw_perfect(axes: Axes, profile: ParallelismProfile) -> None:
    """Draw the time under perfect scaling from the fewest devices that fit."""
    fitting = [point for point in profile if point.time_seconds]
    if fitting:
        first = fitting[0]
        devices = sorted({point.devices for point in fitting if point.devices >= first.devices})
        seconds = first.time_seconds or 0.0
        times = [1e3 * seconds * first.devices / count for count in devices]
        axes.plot(devices, times, ":", color=GREY, label="perfect scaling")
