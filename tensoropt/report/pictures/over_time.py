"""Pictures over the time of a step: a device's memory by its holders, and the passes of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.report.pictures.canvas import COLOURS, GREY, shortened, text_colour
from tensoropt.view import PlanView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_memory", "draw_schedule"]

_MEBI = 2**20
_MOST_TENSORS = 8
_HEADROOM = 1.75
"""The height of the axes over the peak, so that texts stand above the areas."""


def draw_memory(axes: Axes, view: PlanView) -> None:
    """Draw what holds the memory at the events of a step, in MiB, and mark the peak.

    Without a followed step (as of pipelines) there is one bar: the holders at the peak.
    """
    held = view.memory
    if held.step:
        _draw_step(axes, view)
    else:
        bottom = 0.0
        for share in held.peak:
            colour = COLOURS[held.holders.index(share.holder) % len(COLOURS)]
            axes.bar(0, share.bytes / _MEBI, bottom=bottom, color=colour, label=share.holder)
            bottom += share.bytes / _MEBI
        axes.set_xlim(-1, 1)
        axes.set_ylim(0, _HEADROOM * bottom)
        axes.set_xticks([])
        of_stage = "of the stage with the most" if view.stages else "of a device"
        axes.set_title(f"memory {of_stage}, as the search counts it")
    axes.set_ylabel("memory of a device (MiB)")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize="small", loc="upper left")


def _draw_step(axes: Axes, view: PlanView) -> None:
    held = view.memory
    events = [at.event for at in held.step]
    used = [n for n in range(len(held.holders)) if any(at.bytes[n] for at in held.step)]
    heights = [[at.bytes[n] / _MEBI for at in held.step] for n in used]
    areas = axes.stackplot(
        events,
        heights,
        labels=[held.holders[n] for n in used],
        colors=[COLOURS[n % len(COLOURS)] for n in used],
        step="mid",
    )
    for area in areas:
        area.set_verts([_corners(np.asarray(path.vertices)) for path in area.get_paths()])
    peak = max(held.step, key=lambda at: (sum(at.bytes), -at.event))
    largest = [
        f"{each.bytes / _MEBI:,.4g}  {each.holder}: {shortened(each.name, 36)}"
        for each in held.alive[:_MOST_TENSORS]
    ]
    top = held.peak_bytes / _MEBI
    axes.axvline(peak.event, color="black", linestyle="--", linewidth=1)
    axes.plot(peak.event, top, "o", color="black", markersize=5)
    says = f"peak {top:,.4g} MiB (dot) at {shortened(held.at, 36)}"
    axes.text(
        0.99,
        0.98,
        "\n".join([says, "the largest tensors there (MiB):", *largest]),
        transform=axes.transAxes,
        fontsize="small",
        ha="right",
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.9},  # over the peak's line
    )
    axes.set_ylim(0, _HEADROOM * top)
    axes.set_xlim(0, held.events)
    axes.set_xlabel("operators of the step in their order: forward pass, backward pass, updates")
    axes.set_title("memory of a device over a step, estimated")


def _corners(outline: Float64Array) -> Float64Array:
    """The points at which an outline along the axes turns: files of pictures need no others."""
    points = outline[(outline != np.roll(outline, 1, 0)).any(1)]
    straight = (points == np.roll(points, 1, 0)) & (points == np.roll(points, -1, 0))
    corners: Float64Array = points[~straight.any(1)]
    return corners


_MILLI = 1e6
_COLOURS = {"forward": COLOURS[0], "backward": COLOURS[1], "once": GREY}
_NAMES = {"forward": "forward", "backward": "backward", "once": "sums of gradients, updates"}
_MOST_NUMBERS = 200
"""The most passes whose microbatches are written on them."""


def draw_schedule(axes: Axes, view: PlanView) -> None:
    """Draw a bar for each pass: its stage, and when it begins and ends, in ms."""
    for kind, colour in _COLOURS.items():
        passes = [each for each in view.schedule if each.kind == kind and each.end > each.start]
        axes.barh(
            [each.stage for each in passes],
            [(each.end - each.start) / _MILLI for each in passes],
            left=[each.start / _MILLI for each in passes],
            color=colour,
            edgecolor="white",
            linewidth=0.5,
            label=_NAMES[kind],
        )
        if len(view.schedule) <= _MOST_NUMBERS and kind != "once":
            for each in passes:
                middle = (each.start + each.end) / 2 / _MILLI
                text = str(each.microbatch)
                axes.text(
                    middle,
                    each.stage,
                    text,
                    ha="center",
                    va="center",
                    fontsize="x-small",
                    color=text_colour(colour),
                )
    axes.set_yticks(
        range(len(view.stages)),
        [f"stage {n}\nwaits {stage.waits:.0%}" for n, stage in enumerate(view.stages)],
    )
    axes.invert_yaxis()
    axes.set_xlabel("time since the step began (ms); numbers are microbatches")
    axes.set_title(f"schedule of {len(view.stages)} stages, {view.summary.schedule}")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
