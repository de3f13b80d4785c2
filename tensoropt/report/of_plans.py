"""The methods of plans and profiles that draw them or print them for a notebook.

`tensoropt.plan` is below this package, and looks this module up when such a method is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.plan.parallelism_profile import ParallelismProfile
from tensoropt.plan.plan import Plan
from tensoropt.report.pictures.canvas import save
from tensoropt.report.pictures.plans import picture
from tensoropt.report.pictures.profiling import profile_figure
from tensoropt.report.views.html import html_summary
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
    """See `Plan._repr_html_`."""
    return html_summary(view_of(plan))
