"""``tensoropt check``: list the operators of a script that cannot be split, without running it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.cli.arguments import Subparsers, positive
from tensoropt.cli.script_dry_run import add_script_arguments, check_is_script, dry_run_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.split_check import Check
from tensoropt.report.split_check_table import check_table

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import DryRun

__all__ = ["add_parser", "check_of_script"]

_DEVICES = 4
"""The number of devices if neither the command line nor the cluster gives one."""

_DESCRIPTION = """
Run a training script on this process alone, without MPI, up to its find_strategy, and list every
operator that cannot be split over the devices of a cluster: why, and what it costs in time and
memory. Nothing is searched and nothing is trained. The script's own arguments come after `--`.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "check",
        help="list the operators of a script that cannot be split, why and at what cost",
        description=_DESCRIPTION,
        usage="tensoropt check SCRIPT [options] [-- script arguments]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--devices",
        metavar="N",
        type=positive,
        help=f"number of devices; by default all of the cluster, {_DEVICES} of this machine",
    )
    add_script_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Check the script, and print the result."""
    check_is_script(options.script, "check")
    cluster = None if options.cluster is None else load_cluster(options.cluster)
    from tensoropt.frontend.job.dry_run import DryRun

    cluster_devices = None if cluster is None else cluster.devices
    dry_run = DryRun(
        devices=options.devices or cluster_devices or _DEVICES,
        cluster=cluster,
        batch_size=options.batch_size,
        aim="check",
    )
    print(check_table(check_of_script(options.script, options.script_arguments, dry_run)))


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
