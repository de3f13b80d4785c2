"""``tensoropt plan``: plan a script for the devices of a cluster, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensoropt.cli.command import (
    Answer,
    ScriptCommand,
    check_folder,
    cluster_option,
    given,
    option,
    planning_options,
)
from tensoropt.cli.script_dry_run import check_is_script, dry_run_script, hush_tensorflow
from tensoropt.cli.show import plan_parts
from tensoropt.cli.view import check_page, write_page
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.options.relations import not_for
from tensoropt.planner.options.values import count

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import PlanReached

__all__ = ["plan", "plan_reached"]

_POINTS_OF_PAGE = 16
"""The points of a frontier whose strategies a page has; each takes seconds to plan."""


@click.command(cls=ScriptCommand, answer=Plan)
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path))
@option(*("--devices", "N", int, count), required=True, help="Number of devices.")
@cluster_option
@planning_options(without=not_for("mini_cost"))
@click.option(
    *("--output", "file"),
    metavar="PLAN.json",
    type=click.Path(path_type=Path),
    help="Write the plan here.",
)
@click.option(
    *("--html", "page"),
    metavar="PAGE.html",
    type=click.Path(path_type=Path),
    help="Write the plan as a page here, with strategies of other points of its frontier.",
)
@click.option(
    *("--explain", "layer"),
    metavar="LAYER",
    default="",
    help="Price other divisions of a layer, by its name or a pattern, in about 30 seconds.",
)
def plan(
    script: Path,
    devices: int,
    cluster: str | None,
    file: Path | None,
    page: Path | None,
    layer: str,
    arguments: Sequence[str],
    **options: Any,
) -> Answer:
    """Plan a script for the devices of a cluster, without running it.

    Run a training script on this process alone, without MPI, up to its build_execution_graph, with
    find_strategy planning for the devices of a cluster; print the plan and the frontier that it was
    chosen from. Nothing is trained. The script's own arguments come after `--`. Options of
    find_strategy replace the script's. With --explain, --json writes the explanation.
    """
    if file is not None:
        check_folder("a plan", file, "--output")
    if page is not None:
        check_page(page)
    if layer and options.get("point") is not None:
        raise OptionError(
            "--explain compares divisions under the planner's own choice. Got --point, too; leave "
            "one of them out."
        )
    points = 0 if page is None else _POINTS_OF_PAGE
    reached = plan_reached(script, devices, cluster, arguments, options, "plan", points, layer)
    plan = reached.plan
    parts = plan_parts(plan)
    if reached.explanation is not None:
        parts += ["", str(reached.explanation)]
    if file is not None:
        plan.save(file)
        parts.append(f"written to {file}")
    if page is not None:
        parts.append(write_page(plan, page, reached.points))
    return Answer(reached.explanation or plan, tuple(parts))


def plan_reached(
    script: Path,
    devices: int,
    cluster: str | None,
    arguments: Sequence[str],
    options: Mapping[str, Any],
    aim: str,
    points: int = 0,
    explain: str = "",
) -> PlanReached:
    """The plan that a script passes to ``build_execution_graph``, and plans of other points.

    Args:
        script: a Python file.
        devices: the number of devices.
        cluster: name or path of their cluster; None for this machine.
        arguments: the script's command line.
        options: options of `find_strategy` that replace the script's; None for those that do not.
        aim: the subcommand, for errors.
        points: the most points of the frontier to plan beside it.
        explain: the layer to explain; empty for none.

    Raises:
        OptionError: there is no script; options that exclude one another; another aim than a plan.
    """
    check_is_script(script, aim)
    planned = None if cluster is None else load_cluster(cluster)
    replaced = given(options)
    if replaced.get("option") == "profiling":
        raise OptionError(
            f"`tensoropt {aim}` makes a plan. Got --option profiling, which makes a table; run "
            "`tensoropt profiling`."
        )
    PlanningOptions(**replaced)  # an error comes before the script runs
    hush_tensorflow()
    from tensoropt.frontend.job.dry_run import DryRun, PlanReached

    dry_run = DryRun(devices, planned, replaced, "plan", points, explain)
    try:
        dry_run_script(script, arguments, dry_run)
    except PlanReached as reached:
        return reached
