"""The answer of ``tensoropt profile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.cli.answers.answer import Answer
from tensoropt.report.machine_profile_tables import (
    collective_table,
    left_line,
    operator_table,
    overhead_line,
    steps_line,
)
from tensoropt.report.text_table import Report

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.measuring.profile_measurement import Profiled

__all__ = ["ProfileAnswer", "profile_answer"]


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


def profile_answer(profiled: Profiled) -> Answer:
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
