"""``tensoropt profile``: measure this machine, so that predictions are accurate."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensoropt.cli.command import Answer, ScriptCommand, given, option, planning_options
from tensoropt.cli.script_dry_run import check_is_script, dry_run_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import TensorOptError
from tensoropt.planner.options.values import count, memory
from tensoropt.report.machine_profile_tables import (
    collective_table,
    left_line,
    operator_table,
    overhead_line,
    steps_line,
)
from tensoropt.report.progress_bar import progress_bar
from tensoropt.report.text_table import Report

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.measuring.profile_measurement import Profiled
    from tensoropt.planner.request import Request

__all__ = ["ProfileAnswer", "profile"]


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """The measurements of this machine.

    Attributes:
        file: the profile's file, whose JSON has all measurements.
        complete: whether plans use the profile.
        collectives: number of measured collectives.
        operators: number of measured operators.
        steps: number of measured steps.
        measured: number of measurements made this time.
        seconds: their duration.
        left_operators: number of operators for which there was no time.
        left_collectives: number of collectives for which there was no time.
        skipped: the reason why an operator cannot be timed, by the operator.
        not_run: the reason why the script's steps were not measured; empty if they were.
    """

    file: str
    complete: bool
    collectives: int
    operators: int
    steps: int
    measured: int
    seconds: float
    left_operators: int
    left_collectives: int
    skipped: Mapping[str, str]
    not_run: str


def _answer(profiled: Profiled) -> Answer:
    """The answer for a measurement."""
    profile = profiled.profile
    value = ProfileAnswer(
        str(profiled.path),
        profile.complete,
        len(profile.collectives),
        len(profile.operators),
        len(profile.steps),
        profiled.measured,
        profiled.seconds,
        profiled.left,
        len(profiled.left_collectives),
        profile.skipped,
        profiled.not_run,
    )
    return Answer(value, tuple(_parts(profiled)))


def _parts(profiled: Profiled) -> Iterator[Report | str]:
    profile = profiled.profile
    if profile.collectives:
        yield from (collective_table(profile), "")
    if profile.operators:
        yield from (operator_table(profile), "")
    yield overhead_line(profile)
    if profile.steps:
        yield steps_line(profile)
    if profiled.not_run:
        yield f"steps of the script were not measured: {profiled.not_run}"
    if profile.skipped:
        yield f"{len(profile.skipped)} operators cannot be timed: {_reasons(profile.skipped)}"
    if profiled.left:
        yield f"{profiled.left} operators are interpolated: there was no time to measure them"
    if profiled.left_collectives:
        left = [(each.kind, each.wanted_bytes) for each in profiled.left_collectives]
        yield left_line(left)
    if profiled.measured:
        yield f"measured {profiled.measured} times in {profiled.seconds:.0f} s: {profiled.path}"
    else:
        yield f"nothing to measure, the profile is complete: {profiled.path}"


def _reasons(skipped: Mapping[str, str]) -> str:
    distinct = sorted({reason.partition(":")[0] for reason in skipped.values()})
    return ", ".join(distinct)


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
    return _answer(profiled) if group.rank == 0 else None


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
