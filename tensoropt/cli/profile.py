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

from tensoropt.cli.answers.answer import Answer
from tensoropt.cli.answers.profile import ProfileAnswer, profile_answer
from tensoropt.cli.command import ScriptCommand, given, option, planning_options
from tensoropt.cli.script_dry_run import check_is_script, dry_run_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import TensorOptError
from tensoropt.planner.options.values import count, memory
from tensoropt.report.progress_bar import progress_bar

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.measuring.profile_measurement import Profiled
    from tensoropt.planner.request import Request

__all__ = ["profile"]

_LARGEST_BYTES = 64 * 2**20  # of collectives
_SECONDS = 60  # for operators
_NETWORK_SECONDS = 180  # for collectives of several machines


@click.command(cls=ScriptCommand, answer=ProfileAnswer)
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
def profile(script: Path | None, arguments: Sequence[str], **options: Any) -> Answer | None:
    """Measure this machine under mpirun, for accurate predictions.

    Measure with the number of ranks that plans will have: every collective over every device
    partition, operators at local shapes, and overheads. With a script, measure the operators of its
    training step under every configuration, and steps under a few strategies, which show how much
    longer operators and collectives take in steps than alone; without a script, a grid of common
    operators. The profile is kept in the user's cache, where find_strategy looks for it; a later
    run measures the missing parts, also after an interruption. The script's own arguments come
    after `--`.
    """
    if script is not None:
        check_is_script(script, "profile")
    from collectives import world
    from tensoropt.frontend.job import failure

    group = world()
    if group.size > 1:
        failure.install(group, lambda: None)
    try:
        profiled = _measured(script, arguments, group.rank == 0, **options)
    except TensorOptError as error:
        if group.size == 1:
            raise
        sys.excepthook(type(error), error, error.__traceback__)  # prints once and ends the job
        return None
    return profile_answer(profiled) if group.rank == 0 else None


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
