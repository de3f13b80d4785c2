"""``tensoropt profile``: measure this machine, so that predictions are accurate."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.cli.arguments import Subparsers, memory_bytes, positive
from tensoropt.cli.script_dry_run import dry_run_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError, TensorOptError
from tensoropt.report.machine_profile_tables import (
    collective_table,
    operator_table,
    overhead_line,
    steps_line,
)
from tensoropt.report.progress_bar import progress_bar

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.measuring.profile_measurement import Profiled
    from tensoropt.planner.request import Request

__all__ = ["add_parser"]

_LARGEST_BYTES = 64 * 2**20  # of collectives
_SECONDS = 60  # for operators

_DESCRIPTION = """
Measure this machine under mpirun, with the number of ranks that plans will have: every collective
over every device partition, operators at local shapes, and overheads. With a script, measure the
operators of its training step under every configuration, and steps under a few strategies, which
show how much longer operators and collectives take in steps than alone; without a script, a grid of
common operators. The profile is kept in the user's cache, where find_strategy looks for it; a later
run measures the missing parts, also after an interruption. The script's own arguments come after
`--`.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "profile",
        help="measure this machine under mpirun, for accurate predictions",
        description=_DESCRIPTION,
        usage="mpirun -np N tensoropt profile [SCRIPT] [options] [-- script arguments]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "script", metavar="SCRIPT", type=Path, nargs="?", help="the training script"
    )
    parser.add_argument(
        "--batch-size", metavar="B", type=positive, help="global batch, instead of the script's"
    )
    parser.add_argument(
        "--output", metavar="PROFILE.json", type=Path, help="keep it here instead of the cache"
    )
    parser.add_argument(
        "--force", action="store_true", help="measure everything again, even if a profile exists"
    )
    parser.add_argument(
        "--largest",
        metavar="AMOUNT",
        type=memory_bytes,
        default=_LARGEST_BYTES,
        help="largest size of collectives, 64MiB by default; plans extrapolate above it",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=positive,
        default=_SECONDS,
        help=f"time for the operators, {_SECONDS} by default; the costliest come first",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, and print the profile on the first rank."""
    from collectives import world
    from tensoropt.frontend.job import failure

    if options.script is None and options.script_arguments:
        raise OptionError(
            "without a script, `tensoropt profile` has only arguments of its own. Got "
            f"{' '.join(options.script_arguments)}; see `tensoropt profile --help`."
        )
    group = world()
    if group.size > 1:
        failure.install(group, lambda: None)
    try:
        profiled = _measured(options, group.rank == 0)
    except TensorOptError as error:
        if group.size == 1:
            raise
        sys.excepthook(type(error), error, error.__traceback__)  # prints once and ends the job
        return
    if group.rank == 0:
        _print(profiled)


def _measured(options: argparse.Namespace, is_first: bool) -> Profiled:
    from tensoropt.frontend import enable_graph_mode
    from tensoropt.frontend.measuring.profile_measurement import ProfileRequest, measure_profile

    enable_graph_mode()  # before measurements, which would otherwise run eagerly

    def step() -> tuple[Any, Request]:
        return _step(options.script, options.script_arguments, options.batch_size, is_first)

    request = ProfileRequest(
        path=options.output,
        force=options.force,
        largest_bytes=options.largest,
        seconds=options.seconds,
        step=None if options.script is None else step,
    )
    progress = progress_bar(sys.stderr) if is_first else lambda *_: None
    try:
        return measure_profile(request, progress)
    finally:
        progress("", 0, 0)


def _step(
    script: Path, arguments: Sequence[str], batch_size: int | None, is_first: bool
) -> tuple[Any, Request]:
    """The script's graph and its training step; only the first rank prints the script's output."""
    from collectives import world
    from tensoropt.frontend.job.dry_run import DryRun, StepReached

    dry_run = DryRun(
        devices=world().size,
        cluster=load_cluster("this-machine"),  # a named cluster, so that no profile is used
        batch_size=batch_size,
        aim="profile",
    )
    with contextlib.ExitStack() as stack:
        if not is_first:
            silence = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(silence))
        try:
            dry_run_script(script, arguments, dry_run)
        except StepReached as reached:
            return reached.script, reached.request


def _print(profiled: Profiled) -> None:
    profile = profiled.profile
    if profile.collectives:
        print(collective_table(profile) + "\n")
    if profile.operators:
        print(operator_table(profile) + "\n")
    print(overhead_line(profile))
    if profile.steps:
        print(steps_line(profile))
    if profiled.not_run:
        print(f"steps of the script were not measured: {profiled.not_run}")
    if profile.skipped:
        print(f"{len(profile.skipped)} operators cannot be timed: " + _reasons(profile.skipped))
    if profiled.left:
        print(f"{profiled.left} operators are interpolated: there was no time to measure them")
    if profiled.measured:
        print(f"measured {profiled.measured} times in {profiled.seconds:.0f} s: {profiled.path}")
    else:
        print(f"nothing to measure, the profile is complete: {profiled.path}")


def _reasons(skipped: dict[str, str]) -> str:
    distinct = sorted({reason.partition(":")[0] for reason in skipped.values()})
    return ", ".join(distinct)
