"""``tensoropt frontier``: the frontier of a script's step, or of a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tensoropt.cli.answers.answer import Answer
from tensoropt.cli.answers.frontier import FrontierAnswer, frontier_answer
from tensoropt.cli.command import ScriptCommand, cluster_option, given, option, planning_options
from tensoropt.cli.plan import plan_reached
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.planner.options.planning_options import flag_of
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
        _check_alone(file, {"devices": devices, "cluster": cluster, **options}, arguments)
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


def _check_alone(file: Path, options: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Check that a plan file comes without options of planning.

    Raises:
        OptionError: it has options or arguments of a script.
    """
    got = [flag_of(name) for name in given(options)]
    if arguments:
        got.append(f"the arguments {' '.join(arguments)}")
    if got:
        raise OptionError(
            "the frontier of a plan file is that of its own devices, cluster and options. Got "
            f"{', '.join(got)} with {str(file)!r}; leave them out, or give the script to plan it "
            "with them."
        )
