"""``tensoropt plan``: plan a script for the devices of a cluster, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensoropt.cli.command import (
    ScriptCommand,
    cluster_option,
    given,
    option,
    planning_options,
)
from tensoropt.cli.script_dry_run import check_is_script, dry_run_script
from tensoropt.cli.show import print_plan
from tensoropt.cli.view import check_page, write_page
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.planner.options.planning_options import PlanningOptions, flag_of
from tensoropt.planner.options.values import count
from tensoropt.report.parallelism_profile_table import profile_table
from tensoropt.report.text_table import write

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import DryRun

__all__ = ["plan"]

_POINTS_OF_PAGE = 16
"""The points of a frontier whose strategies a page has; each takes seconds to plan."""


@click.command(cls=ScriptCommand)
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path))
@option("--devices", "N", int, count, required=True, help="Number of devices.")
@cluster_option
@planning_options()
@click.option("--profiling", is_flag=True, help="Print a table over numbers of devices.")
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
@click.pass_obj
def plan(
    arguments: Sequence[str] | None,
    /,
    script: Path,
    devices: int,
    cluster: str | None,
    profiling: bool,
    file: Path | None,
    page: Path | None,
    **options: Any,
) -> None:
    """Plan a script for the devices of a cluster, without running it.

    Run a training script on this process alone, without MPI, up to its build_execution_graph, with
    find_strategy planning for the devices of a cluster; print the plan and the frontier that it was
    chosen from. With --profiling, run it up to its find_strategy, and print the plan's time, memory
    and cost on several numbers of devices. Nothing is trained. The script's own arguments come
    after `--`. Options of find_strategy replace the script's.
    """
    check_is_script(script, "plan")
    planned = None if cluster is None else load_cluster(cluster)
    replaced = given(options)
    _check(replaced, profiling, file, page)
    from tensoropt.frontend.job.dry_run import DryRun

    points = 0 if page is None else _POINTS_OF_PAGE
    dry_run = DryRun(devices, planned, replaced, "profiling" if profiling else "plan", points)
    if profiling:
        write(profile_table(_profile_of_script(script, arguments or (), dry_run)))
        return
    plan, plans_of_points = _plans_of_script(script, arguments or (), dry_run)
    print_plan(plan)
    if file is not None:
        plan.save(file)
        print(f"written to {file}")
    if page is not None:
        write_page(plan, page, plans_of_points)


def _check(
    options: Mapping[str, Any], profiling: bool, file: Path | None, page: Path | None
) -> None:
    """Check options before the script runs.

    Raises:
        OptionError: options of a table without ``--profiling``, or of a plan with it; options that
            exclude one another; an output in a folder that does not exist.
    """
    for name in ("parallelism", "memory_limits_bytes", "device_hour_cost"):
        if name in options and not profiling:
            flag = flag_of(name)
            raise OptionError(
                f"{flag} is for the table of --profiling. Got {flag} without it; add --profiling, "
                "or leave it out."
            )
    if profiling and (file is not None or page is not None or "point" in options):
        raise OptionError(
            "--output, --html and --point are for a plan. Got one with --profiling, which prints a "
            "table; leave one of the two out."
        )
    if file is not None and not file.absolute().parent.is_dir():
        raise OptionError(
            f"a plan is written into an existing folder. Got --output {str(file)!r}; make its "
            "folder, or give another path."
        )
    if page is not None:
        check_page(page)
    PlanningOptions("profiling" if profiling else "mini_time", **options)


def _plans_of_script(
    script: Path, arguments: Sequence[str], dry_run: DryRun
) -> tuple[Plan, Mapping[int, Plan]]:
    """The plan that a script passes to ``build_execution_graph``; see `dry_run_script`.

    Args:
        script: a Python file, run as ``__main__``.
        arguments: its command line.
        dry_run: the devices to plan for.

    Returns:
        The plan, and the plans of points of its frontier by number, as many as the dry run has.
    """
    from tensoropt.frontend.job.dry_run import PlanReached

    try:
        dry_run_script(script, arguments, dry_run)
    except PlanReached as reached:
        return reached.plan, reached.points


def _profile_of_script(
    script: Path, arguments: Sequence[str], dry_run: DryRun
) -> ParallelismProfile:
    """The table over numbers of devices, for a script's first ``find_strategy``."""
    from tensoropt.frontend.job.dry_run import ProfilingReached

    try:
        dry_run_script(script, arguments, dry_run)
    except ProfilingReached as reached:
        return reached.profile
