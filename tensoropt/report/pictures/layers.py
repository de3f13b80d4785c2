"""The time of a step by layer: operators and network; and the division of each layer."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from tensoropt.report.pictures.canvas import COLOURS, GREY, shortened, text_colour
from tensoropt.view import PlanView
from tensoropt.view.data.layers import LayerView, Split

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_divisions", "draw_times", "shown_layers"]

_MILLI = 1e6
MOST_LAYERS = 24
"""The most rows of layers in a picture; the costliest are shown, in the model's order."""
_LEAST_SHARE = 0.005
"""The least share of the time of all layers with which one is shown."""


def shown_layers(view: PlanView) -> list[LayerView]:
    """The layers of a picture, in the model's order."""
    least = _LEAST_SHARE * sum(row.nanoseconds for row in view.layers)
    costliest = view.costliest(MOST_LAYERS)
    return [row for row in view.layers if row in costliest and row.nanoseconds >= least]


def _label(row: LayerView) -> str:
    stage = "" if row.stage is None else f"{row.stage}: "
    return f"{stage}{shortened(row.name)}{f'  x{row.count}' if row.count > 1 else ''}"


def _name_rows(axes: Axes, rows: list[LayerView]) -> None:
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize="small")
    axes.invert_yaxis()  # the model's order downwards
    axes.set_ylim(len(rows) - 0.4, -0.6)


def draw_times(axes: Axes, view: PlanView) -> None:
    """Draw a bar for each layer, in ms: its operators, then its communication. A diamond is the
    time of its operators as ranks traced them."""
    rows = shown_layers(view)
    places = range(len(rows))
    operators = [row.operators_nanoseconds / _MILLI for row in rows]
    network = [row.network_nanoseconds / _MILLI for row in rows]
    axes.barh(places, operators, color=COLOURS[0], label="operators, forward and backward")
    axes.barh(places, network, left=operators, color=COLOURS[1], label="communication")
    traced = {n: row.measured_nanoseconds for n, row in enumerate(rows)}
    measured = {n: time / _MILLI for n, time in traced.items() if time is not None}
    if measured:
        axes.plot(
            [*measured.values()], [*measured], "kD", markersize=4, label="operators, measured"
        )
    _name_rows(axes, rows)
    longest = max([row.nanoseconds / _MILLI for row in rows] + [*measured.values()], default=1.0)
    axes.set_xlim(0, 1.05 * longest)
    axes.set_xlabel("time in a step (ms), all like layers together")
    left_out = len(view.layers) - len(rows)
    rest = f", {left_out} cheaper rows left out" if left_out else ""
    axes.set_title(f"time by layer, in the model's order{rest}")
    axes.grid(alpha=0.3, axis="x")
    axes.legend(
        fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.5, ncols=3
    )


def draw_divisions(axes: Axes, view: PlanView) -> None:
    """Draw a bar for each layer that is divided by the devices: a colour for each dimension.

    The width of a part is the logarithm of the number of its pieces, so all bars are equally wide.
    """
    rows = shown_layers(view)
    names = dict.fromkeys(s.dimension for row in rows for s in row.splits if s.dimension)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    labelled = set[str]()
    for place, row in enumerate(rows):
        left = 0.0
        for split in row.splits:
            left = _draw_split(axes, place, left, split, colours, labelled)
    _name_rows(axes, rows)
    axes.set_xticks([])
    levels = " of ".join(f"{level.count} {level.name}s" for level in view.summary.levels)
    devices = "devices of each stage" if view.stages else f"{levels}"
    axes.set_xlabel(f"{devices}, slow links to the left; numbers are pieces")
    axes.set_title("what the devices divide in each layer")
    if not labelled:
        axes.text(
            0.5, 0.5, "no layer is divided", ha="center", va="center", transform=axes.transAxes
        )
    else:
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)


def _draw_split(
    axes: Axes,
    place: int,
    left: float,
    split: Split,
    colours: dict[str, str],
    labelled: set[str],
) -> float:
    """Draw one part of a bar.

    Returns:
        Where the next part begins.
    """
    width = log2(max(split.pieces, 2))
    name = split.dimension or "repeated"
    colour = colours.get(split.dimension, "white")
    axes.barh(
        place,
        width,
        left=left,
        color=colour,
        edgecolor="white" if split.dimension else GREY,
        hatch="" if split.dimension else "///",
        label="" if name in labelled else name,
    )
    labelled.add(name)
    axes.text(
        left + width / 2,
        place,
        f"{name} {split.pieces}",
        ha="center",
        va="center",
        fontsize="small",
        color=text_colour(colour),
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 1},  # over the hatching
    )
    return left + width
