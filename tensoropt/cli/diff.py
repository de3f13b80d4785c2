"""``tensoropt diff``: compare two plan files."""

from __future__ import annotations

from pathlib import Path

import click

from tensoropt.cli.command import Answer, Command
from tensoropt.plan import Plan
from tensoropt.report.views.difference import difference_report
from tensoropt.view.difference import PlanDifference, difference

__all__ = ["diff"]


@click.command(cls=Command, answer=PlanDifference)
@click.argument("before", metavar="BEFORE.json", type=click.Path(path_type=Path))
@click.argument("after", metavar="AFTER.json", type=click.Path(path_type=Path))
def diff(before: Path, after: Path) -> Answer:
    """Compare two plan files: predicted time, memory, communication, and the division of layers.

    Layers are compared by name, so the plans may be of different graphs, numbers of devices or
    clusters; the first lines say so.
    """
    found = difference(Plan.load(before), Plan.load(after))
    return Answer(found, (difference_report(found),))
