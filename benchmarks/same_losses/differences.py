"""Differences between losses of two trainings, and a picture of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.same_losses.ways import PLAIN
from tensoropt.report.pictures.canvas import COLOURS, new_figure, save

__all__ = ["difference", "draw"]

_FIRST, _SMOOTHED = 100, 100  # steps
_TITLES = {"language_model": "language model", "images": "image network"}
_STYLES = ("-", "--", "-.", ":", (0, (1, 3)), (0, (5, 5)), (0, (3, 5, 1, 5)))

Floats = npt.NDArray[np.float64]


def difference(plain: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Return the largest absolute differences of two trainings' losses.

    Returns:
        ``first_hundred`` steps; ``all`` steps; the ``end``, the last step; and ``end_smoothed``,
        the means of the last hundred steps, beside the mean of plain TensorFlow, ``loss``.
    """
    apart = np.abs(np.array(plain) - np.array(other))
    last = slice(-_SMOOTHED, None)
    ends = [float(np.mean(losses[last])) for losses in (plain, other)]
    return {
        "first_hundred": float(apart[:_FIRST].max()),
        "all": float(apart.max()),
        "end": float(apart[-1]),
        "end_smoothed": abs(ends[0] - ends[1]),
        "loss": ends[0],
    }


def draw(found: Mapping[str, Mapping[str, Sequence[float]]], file: Path) -> None:
    """Draw the smoothed losses of each network, and below them the differences of every step.

    Args:
        found: losses by network and way.
        file: the picture.
    """
    figure = new_figure(5.5 * len(found), 7.5)
    panels = figure.subplots(2, len(found), squeeze=False, sharex=True)
    for column, (name, of) in enumerate(found.items()):
        losses, apart = panels[:, column]
        plain = np.array(of[PLAIN])
        for number, (way, own) in enumerate(of.items()):
            style: dict[str, Any] = {
                "color": "black" if way == PLAIN else COLOURS[(number - 1) % len(COLOURS)],
                "linestyle": _STYLES[number % len(_STYLES)],
                "linewidth": 3 if way == PLAIN else 1.2,
                "alpha": 0.4 if way == PLAIN else 1.0,
            }
            losses.plot(_means(np.array(own)), label=way.replace("_", " "), **style)
            if way != PLAIN:
                apart.plot(_means(np.abs(np.array(own) - plain)), **{**style, "linestyle": "-"})
        losses.set_title(_TITLES[name])
        losses.set_ylabel(f"loss, mean of {_SMOOTHED} steps")
        apart.set_yscale("log")
        apart.set_ylabel("difference from plain TensorFlow")
        apart.set_xlabel("step")
        for axes in (losses, apart):
            axes.grid(alpha=0.3)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 * len(found))
    save(figure, file)


def _means(values: Floats) -> Floats:
    """Return the mean of up to a hundred steps before each step."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    steps = np.arange(1, len(values) + 1)
    begins = np.maximum(steps - _SMOOTHED, 0)
    means: Floats = (sums[steps] - sums[begins]) / (steps - begins)
    return means
