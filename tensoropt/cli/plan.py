"""``tensoropt plan``: plan a script for the devices of a cluster, without running it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.cli.arguments import (
    Subparsers,
    memory_bytes,
    positive,
    price,
    seconds_or_none,
    several,
)
from tensoropt.cli.script_dry_run import add_script_arguments, check_is_script, dry_run_script
from tensoropt.cli.show import print_plan
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError
from tensoropt.graph.batch_norm import BATCH_NORMS
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.report.parallelism_profile_table import profile_table
from tensoropt.transformations.staged.schedule import SCHEDULES

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import DryRun

__all__ = ["add_parser", "plan_of_script"]

_DESCRIPTION = """
Run a training script on this process alone, without MPI, up to its build_execution_graph, with
find_strategy planning for the devices of a cluster; print the plan and the frontier that it was
chosen from. With --profiling, run it up to its find_strategy, and print the plan's time, memory and
cost on several numbers of devices. Nothing is trained. The script's own arguments come after `--`.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "plan",
        help="plan a script for the devices of a cluster, without running it",
        description=_DESCRIPTION,
        usage="tensoropt plan SCRIPT --devices N [options] [-- script arguments]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--devices", metavar="N", type=positive, required=True, help="number of devices"
    )
    add_script_arguments(parser)
    parser.add_argument(
        "--memory-limit",
        metavar="AMOUNT",
        type=memory_bytes,
        help="memory of one device, such as 8GiB, instead of the cluster's",
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="the strategies to consider, see find_strategy: ft (all), data_parallel, optcnn, "
        "tofu, tofu_recursive, mesh_tensorflow, brute_force",
    )
    parser.add_argument(
        "--batch-norm",
        choices=BATCH_NORMS,
        help="the statistics of batch normalisation, see find_strategy: the global batch's or each "
        "device's own",
    )
    parser.add_argument(
        "--search-seconds",
        metavar="SECONDS",
        type=seconds_or_none,
        help="time limit of a search, which then ends with its best frontier, see find_strategy; "
        "none for no limit; by default the script's, or 30",
    )
    parser.add_argument(
        "--pipeline",
        metavar="STAGES",
        type=lambda text: text if text == "auto" else positive(text),
        help="number of stages of layers, each on devices of its own, see find_strategy; 1 for no "
        "stages, or auto for all numbers; by default the script's",
    )
    parser.add_argument(
        "--microbatches",
        metavar="K",
        type=positive,
        help="number of equal parts of the batch, see find_strategy; by default the script's",
    )
    parser.add_argument(
        "--schedule",
        choices=SCHEDULES,
        help="order in which the microbatches of a pipeline pass its stages, see find_strategy; by "
        "default the script's",
    )
    parser.add_argument(
        "--point",
        metavar="NUMBER",
        type=int,
        help="plan this point of the frontier, by its number in the table, see find_strategy; by "
        "default the script's, or the point of its option",
    )
    parser.add_argument("--output", metavar="PLAN.json", type=Path, help="write the plan here")
    _add_profiling(parser)
    parser.set_defaults(run=run)


def _add_profiling(parser: argparse.ArgumentParser) -> None:
    """Add the options of a table over numbers of devices."""
    group = parser.add_argument_group("a table instead of a plan")
    group.add_argument(
        "--profiling",
        action="store_true",
        help="time, memory, samples per second and cost of the plans on 1, 2, 4, ... and all "
        "devices",
    )
    group.add_argument(
        "--parallelism",
        metavar="N,N,...",
        type=several(positive),
        default=(),
        help="the numbers of devices",
    )
    group.add_argument(
        "--memory-limits",
        metavar="AMOUNT,AMOUNT,...",
        type=several(memory_bytes),
        default=(),
        help="several memory limits for each number of devices, such as 8GiB,16GiB",
    )
    group.add_argument(
        "--device-hour-cost",
        metavar="PRICE",
        type=price,
        help="price of one device for an hour, in any currency, for the cost of a million samples; "
        "by default the script's, or the cluster's",
    )


def run(options: argparse.Namespace) -> None:
    """Plan, print and save the plan, or print a table."""
    check_is_script(options.script, "plan")
    _check_profiling(options)
    if options.output is not None and not options.output.absolute().parent.is_dir():
        raise OptionError(
            "a plan is written into an existing folder. Got --output "
            f"{str(options.output)!r}; make its folder, or give another path."
        )
    from tensoropt.search.solvers import solver

    cluster = None if options.cluster is None else load_cluster(options.cluster)
    if options.algorithm is not None:
        solver(options.algorithm)  # refuse an unknown algorithm before the script runs
    from tensoropt.frontend.job.dry_run import DryRun

    dry_run = DryRun(
        devices=options.devices,
        cluster=cluster,
        batch_size=options.batch_size,
        memory_limit_bytes=options.memory_limit,
        algorithm=options.algorithm,
        batch_norm=options.batch_norm,
        search_seconds=options.search_seconds,
        pipeline=options.pipeline,
        microbatches=options.microbatches,
        schedule=options.schedule,
        point=options.point,
        parallelism=options.parallelism,
        memory_limits=options.memory_limits,
        device_hour_cost=options.device_hour_cost,
        aim="profiling" if options.profiling else "plan",
    )
    if options.profiling:
        print(profile_table(_profile_of_script(options.script, options.script_arguments, dry_run)))
        return
    plan = plan_of_script(options.script, options.script_arguments, dry_run)
    print_plan(plan)
    if options.output is not None:
        plan.save(options.output)
        print(f"written to {options.output}")


def plan_of_script(script: Path, arguments: Sequence[str], dry_run: DryRun) -> Plan:
    """The plan that a script passes to ``build_execution_graph``; see `dry_run_script`.

    Args:
        script: a Python file, run as ``__main__``.
        arguments: its command line.
        dry_run: the devices to plan for.
    """
    from tensoropt.frontend.job.dry_run import PlanReached

    try:
        dry_run_script(script, arguments, dry_run)
    except PlanReached as reached:
        return reached.plan


def _profile_of_script(
    script: Path, arguments: Sequence[str], dry_run: DryRun
) -> ParallelismProfile:
    """The table over numbers of devices, for a script's first ``find_strategy``."""
    from tensoropt.frontend.job.dry_run import ProfilingReached

    try:
        dry_run_script(script, arguments, dry_run)
    except ProfilingReached as reached:
        return reached.profile


def _check_profiling(options: argparse.Namespace) -> None:
    """Check that options of the table come with ``--profiling``, and options of a plan without it.

    Raises:
        OptionError: if they do not; for two options for the memory limit.
    """
    names = ("parallelism", "memory_limits", "device_hour_cost")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given and not options.profiling:
        raise OptionError(
            f"{given[0]} is for the table of --profiling. Got {given[0]} without it; add "
            "--profiling, or leave it out."
        )
    plans = options.output is not None or options.point is not None
    if options.profiling and plans:
        raise OptionError(
            "--output and --point are for a plan. Got one with --profiling, which prints a table; "
            "leave one of the two out."
        )
    if options.memory_limit is not None and options.memory_limits:
        raise OptionError(
            "a memory limit is one, or one of several. Got --memory-limit with --memory-limits; "
            "leave one of the two out."
        )
