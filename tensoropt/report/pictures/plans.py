"""The pictures of a plan, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensoropt.errors import OptionError
from tensoropt.report.pictures.canvas import new_figure
from tensoropt.report.pictures.frontier import draw_frontier
from tensoropt.report.pictures.layers import draw_divisions, draw_times, shown_layers
from tensoropt.report.pictures.over_time import draw_memory, draw_schedule
from tensoropt.view import PlanView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OVERVIEW", "PICTURES", "picture"]

PICTURES: dict[str, Callable[[Any, PlanView], None]] = {
    "frontier": draw_frontier,
    "layers": draw_times,
    "divisions": draw_divisions,
    "memory": draw_memory,
    "schedule": draw_schedule,
}
"""What draws each picture on axes."""
OVERVIEW = "overview"
"""The name of all pictures on one page."""

_WIDTH, _HEIGHT, _ROW = 9.0, 4.8, 0.3  # inches; a row is that of a layer


def picture(view: PlanView, name: str = OVERVIEW) -> Figure:
    """A picture of a plan.

    Args:
        view: the plan's view.
        name: one of `PICTURES`, or `OVERVIEW`.

    Raises:
        OptionError: if there is no picture of this name, or none of this plan; or if Matplotlib
            is not installed.
    """
    if name == OVERVIEW:
        return _overview(view)
    if name not in PICTURES:
        raise OptionError.one_of("a picture of a plan", name, [*PICTURES, OVERVIEW])
    if name == "schedule" and not view.schedule:
        others = ", ".join(each for each in PICTURES if each != name)
        raise OptionError(
            "a schedule has the passes of a pipeline's stages. Got a plan without stages that "
            f"follow each other; draw one of {others}."
        )
    height = _by_layer(view) if name in ("layers", "divisions") else _HEIGHT
    figure = new_figure(_WIDTH + 2 * (name == "memory"), height)
    PICTURES[name](figure.subplots(), view)
    return figure


def _by_layer(view: PlanView) -> float:
    return max(_HEIGHT, 1.8 + _ROW * len(shown_layers(view)))


def _overview(view: PlanView) -> Figure:
    names: list[Any] = [["frontier", "memory"], ["layers", "divisions"]]
    heights = [_HEIGHT, _by_layer(view)]
    if view.schedule:
        names.append(["schedule", "schedule"])
        heights.append(1.5 + 0.5 * len(view.stages))
    figure = new_figure(2 * _WIDTH, sum(heights))
    axes = figure.subplot_mosaic(names, height_ratios=heights)
    for name, of_name in axes.items():
        PICTURES[name](of_name, view)
    figure.suptitle(view.summary.sentence, fontsize="large")
    return figure
