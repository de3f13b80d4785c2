"""``tensoropt show``: print a plan file."""

from __future__ import annotations

from pathlib import Path

import click

from tensoropt.cli.command import Answer, Command, check_folder
from tensoropt.cli.view import check_page, write_page
from tensoropt.plan import Plan
from tensoropt.report.cluster_links import links_line
from tensoropt.report.pictures.canvas import save
from tensoropt.report.pictures.plans import OVERVIEW, PICTURES
from tensoropt.report.pictures.plans import picture as draw
from tensoropt.report.plan_table import frontier_table, plan_table, rewrite_table, stage_table
from tensoropt.report.text_table import Report
from tensoropt.report.views.layers import (
    communication_table,
    layer_table,
    memory_table,
    replicated_table,
)
from tensoropt.report.views.summary import summary
from tensoropt.view import PlanView, view_of
from tensoropt.view.traced import with_traces

__all__ = ["plan_parts", "show"]

_PARTS = {
    "layers": "All layers, and what several devices do or hold alike.",
    "operators": "All operators, in the paper's notation.",
    "communication": "All communication: what, between which layers, over which devices.",
    "memory": "What holds the memory of a device at the peak.",
    "frontier": "The frontier from which the plan was chosen.",
}


@click.command(cls=Command, answer=PlanView)
@click.argument("file", metavar="PLAN.json", type=click.Path(path_type=Path))
@click.option("--layers", is_flag=True, help=_PARTS["layers"])
@click.option("--operators", is_flag=True, help=_PARTS["operators"])
@click.option("--communication", is_flag=True, help=_PARTS["communication"])
@click.option("--memory", is_flag=True, help=_PARTS["memory"])
@click.option("--frontier", is_flag=True, help=_PARTS["frontier"])
@click.option(
    "--trace",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Add measured times by layer, from the folder of TENSOROPT_TRACE.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw the plan into a .png, .svg or .pdf file; needs the extra `plots`.",
)
@click.option(
    "--picture",
    metavar="NAME",
    default=OVERVIEW,
    help=f"The picture to draw: {', '.join([*PICTURES, OVERVIEW])} (all, the default).",
)
@click.option(
    *("--html", "page"),
    metavar="PAGE.html",
    type=click.Path(path_type=Path),
    help="Write the plan as one page here, instead of printing it.",
)
def show(
    file: Path,
    trace: Path | None,
    plot: Path | None,
    picture: str,
    page: Path | None,
    **wanted: bool,
) -> Answer:
    """Print a plan file: its summary and its costliest layers; or the parts that are asked for.

    With --json the plan by layer, in words, with its communication, memory and frontier.
    """
    plan = Plan.load(file)
    view = view_of(plan) if trace is None else with_traces(view_of(plan), trace)
    if plot is not None:
        check_folder("a picture", plot, "--plot")
        save(draw(view, picture), plot)
        return Answer(view, (f"drawn into {plot}",))
    if page is not None:
        check_page(page)
        return Answer(view, (write_page(plan, page, view=view),))
    parts = [_part(plan, view, name) for name, is_wanted in wanted.items() if is_wanted]
    return Answer(view, tuple(parts or plan_parts(plan, view)))


def _part(plan: Plan, view: PlanView, name: str) -> Report:
    """One of `_PARTS`, under its title."""
    if name == "operators":
        return Report("operators\n", plan_table(plan), "")
    if name == "frontier":
        title = f"frontier of cluster {plan.cluster} (* is the plan)\n"
        return Report(title, frontier_table(plan), "")
    if name == "layers":
        title = "\nwhat several devices do or hold alike\n"
        return Report("layers\n", layer_table(view), title, replicated_table(view), "")
    of_view = communication_table if name == "communication" else memory_table
    return Report(f"{name}\n", of_view(view), "")


def plan_parts(plan: Plan, view: PlanView | None = None) -> list[Report | str]:
    """The plan's summary with its costliest layers, its stages and substitutions, and its notes."""
    parts: list[Report | str] = [summary(view or view_of(plan))]
    if plan.stages:
        parts += ["\nstages of the pipeline\n", stage_table(plan)]
    if plan.rewrites:
        parts += ["\nsubstitutions in the graph\n", rewrite_table(plan)]
    parts.append("")
    if links := links_line(plan.cluster):
        parts.append(f"links: {links}")
    if plan.fixed:
        parts.append(f"fixed by hand: {', '.join(map(str, plan.fixed))}")
    if plan.validation is not None:
        parts.append(f"measured before it was adopted:\n{plan.validation}")
    if plan.looked_at:
        parts.append(plan.looked_at)
    return [*parts, *(f"note: {note}" for note in plan.notes)]
