"""``tensoropt show``: print a plan file."""

from __future__ import annotations

from pathlib import Path

import click

from tensoropt.cli.answers.answer import Answer
from tensoropt.cli.command import Command
from tensoropt.plan import Plan
from tensoropt.report.cluster_links import links_line
from tensoropt.report.frontier_table import frontier_table
from tensoropt.report.plan_table import plan_table
from tensoropt.report.rewrite_table import rewrite_table
from tensoropt.report.stage_table import stage_table
from tensoropt.report.text_table import Report, write

__all__ = ["plan_parts", "print_plan", "show"]


@click.command(cls=Command, answer=Plan)
@click.argument("file", metavar="PLAN.json", type=click.Path(path_type=Path))
def show(file: Path) -> Answer:
    """Print a plan file: its operators, stages and costs, and the frontier it was chosen from."""
    plan = Plan.load(file)
    return Answer(plan, tuple(plan_parts(plan)))


def print_plan(plan: Plan) -> None:
    """Print the plan's tables, its frontier and its notes."""
    write(*plan_parts(plan))


def plan_parts(plan: Plan) -> list[Report | str]:
    """The plan's tables, its frontier and its notes."""
    parts: list[Report | str] = [plan_table(plan)]
    if plan.stages:
        parts += ["\nstages of the pipeline\n", stage_table(plan)]
    if plan.rewrites:
        parts += ["\nsubstitutions in the graph\n", rewrite_table(plan)]
    parts += [f"\nfrontier of cluster {plan.cluster} (* is the plan)\n", frontier_table(plan)]
    if links := links_line(plan.cluster):
        parts.append(f"\nlinks: {links}")
    parts.append(f"\n{plan}")
    if plan.validation is not None:
        parts.append(f"measured before it was adopted:\n{plan.validation}")
    if plan.looked_at:
        parts.append(plan.looked_at)
    return [*parts, *(f"note: {note}" for note in plan.notes)]
