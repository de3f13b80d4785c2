"""The methods of plans and profiles that draw them or print them for a notebook.

`tensoropt.plan` is below this package, and looks this module up when such a method is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.plan.parallelism_profile import ParallelismProfile
from tensoropt.plan.plan import Plan
from tensoropt.report.pictures.canvas import save
from tensoropt.report.pictures.plans import picture
from tensoropt.report.pictures.profiling import profile_figure
from tensoropt.report.views.layers import layer_columns
from tensoropt.report.views.summary import COSTLIEST, summary_lines
from tensoropt.view import view_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["html_of", "plot", "plot_profile"]


def plot(plan: Plan, name: str, file: str | Path | None) -> Figure:
    """See `Plan.plot`."""
    figure = picture(view_of(plan), name)
    if file is not None:
        save(figure, file)
    return figure


def plot_profile(profile: ParallelismProfile, file: str | Path | None) -> Figure:
    """See `ParallelismProfile.plot`."""
    figure = profile_figure(profile)
    if file is not None:
        save(figure, file)
    return figure


def html_of(plan: Plan) -> str:
    """See `Plan._repr_html_`: the plan's sentence, its costs by cause, its costliest layers."""
    view = view_of(plan)
    facts = "".join(
        f"<tr><th style='text-align:left'>{escape(title)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for title, text in summary_lines(view)
    )
    header, rows, right = layer_columns(view, view.costliest(COSTLIEST))
    head = "".join(
        _cell("th", title, to_right) for title, to_right in zip(header, right, strict=True)
    )
    body = "".join(_row(row, right) for row in rows)
    return (
        f"<div><p><b>{escape(view.summary.sentence)}</b></p><table>{facts}</table>"
        f"<p>the costliest of {len(view.layers)} rows of layers</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[str], right: Sequence[bool]) -> str:
    return f"<tr>{''.join(_cell('td', text, r) for text, r in zip(cells, right, strict=True))}</tr>"


def _cell(tag: str, text: str, to_right: bool) -> str:
    side = "right" if to_right else "left"
    return f"<{tag} style='text-align:{side}'>{escape(text)}</{tag}>"
