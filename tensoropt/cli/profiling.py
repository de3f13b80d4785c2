"""``tensoropt profiling``: a script's step on several numbers of devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tensoropt.cli.command import (
    Answer,
    ScriptCommand,
    cluster_option,
    given,
    option,
    planning_options,
)
from tensoropt.cli.script_dry_run import check_is_script, dry_run_script, hush_tensorflow
from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import ParallelismProfile
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.options.relations import not_for
from tensoropt.planner.options.values import count
from tensoropt.report.parallelism_profile_table import profile_table

__all__ = ["profiling"]


@click.command(cls=ScriptCommand, answer=ParallelismProfile)
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path))
@option(*("--devices", "N", int, count), required=True, help="The most devices.")
@cluster_option
@planning_options(without=["option", "point", *not_for("profiling")])
def profiling(
    script: Path, devices: int, cluster: str | None, arguments: Sequence[str], **options: Any
) -> Answer:
    """Show the time, memory and cost of a script's step on several numbers of devices.

    Run a training script on this process alone, without MPI, up to its find_strategy, and plan its
    step for each number of devices and each memory limit. Nothing is trained. The script's own
    arguments come after `--`. Options of find_strategy replace the script's.
    """
    check_is_script(script, "plan")
    planned = None if cluster is None else load_cluster(cluster)
    replaced = given(options)
    PlanningOptions("profiling", **replaced)  # an error comes before the script runs
    hush_tensorflow()
    from tensoropt.frontend.job.dry_run import DryRun, ProfilingReached

    try:
        dry_run_script(script, arguments, DryRun(devices, planned, replaced, "profiling"))
    except ProfilingReached as reached:
        return Answer(reached.profile, (profile_table(reached.profile),))
