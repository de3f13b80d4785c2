"""``tensoropt check``: list operators of a script's step that cannot be split, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tensoropt.planner.options.values import count
from tensoropt.planner.split_check import Check
from tensoropt.report.split_check_table import check_table

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import DryRun

__all__ = ["check", "check_of_script"]

_DEVICES = 4
"""The number of devices if neither the command line nor the cluster gives one."""


@click.command(cls=ScriptCommand, answer=Check)
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path))
@option(
    *("--devices", "N", int, count),
    help=f"Number of devices; by default all devices of the cluster, or {_DEVICES} without one.",
)
@cluster_option
@planning_options("batch_size")
def check(
    script: Path,
    devices: int | None,
    cluster: str | None,
    arguments: Sequence[str],
    **options: Any,
) -> Answer:
    """List the operators of a script that cannot be split, why and at what cost.

    Run a training script on this process alone, without MPI, up to its find_strategy, and list
    every operator that cannot be split over the devices of a cluster: why, and what it costs in
    time and memory. Nothing is searched and nothing is trained. The script's own arguments come
    after `--`.
    """
    check_is_script(script, "check")
    planned = None if cluster is None else load_cluster(cluster)
    hush_tensorflow()
    from tensoropt.frontend.job.dry_run import DryRun

    cluster_devices = None if planned is None else planned.devices
    dry_run = DryRun(devices or cluster_devices or _DEVICES, planned, given(options), "check")
    found = check_of_script(script, arguments, dry_run)
    return Answer(found, (check_table(found),))


def check_of_script(script: Path, arguments: Sequence[str], dry_run: DryRun) -> Check:
    """The check of the step that a script passes to ``find_strategy``; see `dry_run_script`.

    Args:
        script: a Python file, run as ``__main__``.
        arguments: its command line.
        dry_run: the devices to check for, with the aim "check".
    """
    from tensoropt.frontend.job.dry_run import CheckReached

    try:
        dry_run_script(script, arguments, dry_run)
    except CheckReached as reached:
        return reached.check
