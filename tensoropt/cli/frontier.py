"""``tensoropt frontier``: the frontier of a script's step, or of a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tensoropt.cli.answers.answer import Answer
from tensoropt.cli.answers.frontier import FrontierAnswer, frontier_answer
from tensoropt.cli.command import ScriptCommand, cluster_option, option, planning_options
from tensoropt.cli.plan import plan_reached
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.planner.options.relations import not_for
from tensoropt.planner.options.values import count
from tensoropt.report.frontier_table import frontier_table

__all__ = ["frontier"]


@click.command(cls=ScriptCommand, answer=FrontierAnswer)
@click.argument("file", metavar="SCRIPT|PLAN.json", type=click.Path(path_type=Path))
@option(*("--devices", "N", int, count), help="Number of devices, for a script.")
@cluster_option
@planning_options(without=["point", *not_for("mini_cost")])
def frontier(
    file: Path,
    devices: int | None,
    cluster: str | None,
    arguments: Sequence[str],
    **options: Any,
) -> Answer:
    """Show the points between time and memory from which a plan is chosen.

    For a script, plan it as `tensoropt plan` does; for a plan file, read the frontier there. Each
    point has the number that `tensoropt plan --point` and find_strategy(point=...) take. The
    turning point is where more memory begins to gain little time.
    """
    if file.suffix == ".json":
        if devices is not None or arguments:
            raise OptionError(
                "a plan file has its own devices, and takes no arguments. Got --devices or "
                f"arguments with {str(file)!r}; leave them out, or give a script."
            )
        found = Plan.load(file)
    elif devices is None:
        raise OptionError(
            "a frontier is for a number of devices. Got a script without --devices; add "
            "--devices 4."
        )
    else:
        found = plan_reached(file, devices, cluster, arguments, options, "frontier").plan
    answer = frontier_answer(found)
    title = f"frontier of cluster {found.cluster} (* is the plan)\n"
    return Answer(answer, (title, frontier_table(found), answer.turning_sentence))
