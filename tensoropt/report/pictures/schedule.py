"""The passes of a pipeline's step: when which microbatch is in which stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.report.pictures.canvas import COLOURS, GREY, text_colour
from tensoropt.view import PlanView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_schedule"]

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
