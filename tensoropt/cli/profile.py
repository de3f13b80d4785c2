"""``tensoropt profile``: measure this machine, so that predictions are accurate."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensoropt.cli.command import ScriptCommand, given, option, planning_options
from tensoropt.cli.script_dry_run import dry_run_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError, TensorOptError
from tensoropt.planner.options.values import count, memory
from tensoropt.report.machine_profile_tables import (
    collective_table,
    left_line,
    operator_table,
    overhead_line,
    steps_line,
)
from tensoropt.report.progress_bar import progress_bar
from tensoropt.report.text_table import write

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.measuring.profile_measurement import Profiled
    from tensoropt.planner.request import Request

__all__ = ["profile"]

_LARGEST_BYTES = 64 * 2**20  # of collectives
_SECONDS = 60  # for operators
_NETWORK_SECONDS = 180  # for collectives of several machines


@click.command(cls=ScriptCommand)
@click.argument("script", metavar="[SCRIPT]", required=False, type=click.Path(path_type=Path))
@planning_options("batch_size")
@click.option(
    *("--output", "file"),
    metavar="PROFILE.json",
    type=click.Path(path_type=Path),
    help="Keep the profile here instead of the cache.",
)
@click.option("--force", is_flag=True, help="Measure everything again, even if a profile exists.")
@option(
    *("--largest", "AMOUNT", memory, count),
    default=_LARGEST_BYTES,
    help="Largest size of collectives, 64MiB by default; plans extrapolate above it.",
)
@option(
    *("--seconds", "S", int, count),
    default=_SECONDS,
    help=f"Time for the operators, {_SECONDS} by default; the costliest come first.",
)
@option(
    *("--network-seconds", "S", int, count),
    help=f"Time for collectives and steps, {_NETWORK_SECONDS} by default on several machines and "
    "without limit on one; those that plans need most come first.",
)
@click.pass_obj
def profile(arguments: Sequence[str] | None, /, script: Path | None, **options: Any) -> None:
    """Measure this machine under mpirun, for accurate predictions.

    Measure with the number of ranks that plans will have: every collective over every device
    partition, operators at local shapes, and overheads. With a script, measure the operators of its
    training step under every configuration, and steps under a few strategies, which show how much
    longer operators and collectives take in steps than alone; without a script, a grid of common
    operators. The profile is kept in the user's cache, where find_strategy looks for it; a later
    run measures the missing parts, also after an interruption. The script's own arguments come
    after `--`.
    """
    from collectives import world
    from tensoropt.frontend.job import failure

    if script is None and arguments:
        raise OptionError(
            "without a script, `tensoropt profile` has only arguments of its own. Got "
            f"{' '.join(arguments)}; see `tensoropt profile --help`."
        )
    group = world()
    if group.size > 1:
        failure.install(group, lambda: None)
    try:
        profiled = _measured(script, arguments or (), group.rank == 0, **options)
    except TensorOptError as error:
        if group.size == 1:
            raise
        sys.excepthook(type(error), error, error.__traceback__)  # prints once and ends the job
        return
    if group.rank == 0:
        _print(profiled)


def _measured(
    script: Path | None,
    arguments: Sequence[str],
    is_first: bool,
    *,
    batch_size: int | None,
    file: Path | None,
    force: bool,
    largest: int,
    seconds: int,
    network_seconds: int | None,
) -> Profiled:
    from collectives import world
    from tensoropt.frontend import enable_graph_mode
    from tensoropt.frontend.measuring.profile_measurement import ProfileRequest, measure_profile

    enable_graph_mode()  # before measurements, which would otherwise run eagerly
    step = None
    if script is not None:
        step = partial(_step, script, arguments, batch_size, is_first)
    limit = inf if network_seconds is None else network_seconds
    if network_seconds is None and len(set(world().hosts)) > 1:
        limit = _NETWORK_SECONDS
    request = ProfileRequest(file, force, largest, seconds, limit, step)
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
        options=given({"batch_size": batch_size}),
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
        write(collective_table(profile), "")
    if profile.operators:
        write(operator_table(profile), "")
    print(overhead_line(profile))
    if profile.steps:
        print(steps_line(profile))
    if profiled.not_run:
        print(f"steps of the script were not measured: {profiled.not_run}")
    if profile.skipped:
        print(f"{len(profile.skipped)} operators cannot be timed: " + _reasons(profile.skipped))
    if profiled.left:
        print(f"{profiled.left} operators are interpolated: there was no time to measure them")
    if profiled.left_collectives:
        left = [(each.kind, each.wanted_bytes) for each in profiled.left_collectives]
        print(left_line(left))
    if profiled.measured:
        print(f"measured {profiled.measured} times in {profiled.seconds:.0f} s: {profiled.path}")
    else:
        print(f"nothing to measure, the profile is complete: {profiled.path}")


def _reasons(skipped: dict[str, str]) -> str:
    distinct = sorted({reason.partition(":")[0] for reason in skipped.values()})
    return ", ".join(distinct)
