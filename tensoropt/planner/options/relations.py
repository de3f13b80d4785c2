"""Options of planning that need or exclude one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensoropt.errors import OptionError

if TYPE_CHECKING:  # `PlanningOptions` calls this module
    from tensoropt.planner.options.planning_options import PlanningOptions

__all__ = ["BUDGETED", "OF_AIMS", "check_relations", "not_for"]

BUDGETED = ("profiling", "mini_cost")
"""Aims that consider several numbers of devices and the price of each."""

OF_AIMS = {
    "parallelism": BUDGETED,
    "memory_limits_bytes": ("profiling",),
    "device_hour_cost": BUDGETED,
    "max_step_seconds": ("mini_cost",),
    "samples": ("mini_cost",),
    "deadline_seconds": ("mini_cost",),
}
"""The aims that accept an option, for each option that some aims do not accept."""

_VALIDATED_ALGORITHMS = ("ft", "mesh_tensorflow", "brute_force")
"""The algorithms that find several strategies."""


def not_for(aim: str) -> list[str]:
    """The names of options that an aim does not accept."""
    return [name for name, aims in OF_AIMS.items() if aim not in aims]


def check_relations(options: PlanningOptions) -> None:
    """Check options together; each value has been checked alone.

    Raises:
        OptionError: if two options exclude one another, or one lacks another that it needs.
    """
    _check_algorithm(options)
    _check_stages(options)
    _check_measured(options)
    _check_budget(options)


def _refuse(
    options: PlanningOptions, rule: str, *names: str, remedy: str = "leave one of the two out"
) -> None:
    """Raise the error of options that contradict a rule.

    Args:
        options: all options.
        rule: the rule, with which the message begins.
        names: the options that contradict it.
        remedy: what to change.
    """
    got = " with ".join(f"{name}={getattr(options, name)!r}" for name in names)
    raise OptionError(f"{rule}. Got {got}; {remedy}.")


def _check_algorithm(options: PlanningOptions) -> None:
    if options.algorithm == "ft":
        return
    if options.epsilon:
        rule = "epsilon is for algorithm='ft', which proves the gap of its frontier"
        _refuse(options, rule, "algorithm", "epsilon")
    if options.rewrite:
        _refuse(options, "rewritten graphs are searched by algorithm='ft'", "algorithm", "rewrite")
    if options.demands_stages:
        _refuse(options, "stages are searched by algorithm='ft'", "algorithm", "pipeline")
    if options.fixed:
        _refuse(options, "fixed is for algorithm='ft'", "algorithm", "fixed")


def _check_stages(options: PlanningOptions) -> None:
    if options.demands_stages and options.microbatches == 1:
        _refuse(
            options,
            "stages of a pipeline work at once on different microbatches",
            *("pipeline", "microbatches"),
            remedy="give at least 2, or leave it out",
        )
    if options.schedule is not None and options.stages == 1:
        _refuse(
            options,
            "schedule is the order in which microbatches pass the stages of a pipeline",
            *("schedule", "pipeline"),
            remedy="add a pipeline such as pipeline='auto', or leave schedule out",
        )


def _check_measured(options: PlanningOptions) -> None:
    """Check options that adopt another plan than the aim's."""
    if options.validate and options.option == "profiling":
        rule = "validate measures plans before one is adopted, and option='profiling' adopts none"
        _refuse(options, rule, "validate", "option")
    if options.validate and options.algorithm not in _VALIDATED_ALGORITHMS:
        names = ", ".join(_VALIDATED_ALGORITHMS)
        rule = f"validate is for algorithms that find several strategies: {names}"
        _refuse(options, rule, "validate", "algorithm")
    if options.point is not None and (options.validate or options.option == "profiling"):
        rule = "point takes the plan of one point of the frontier, unmeasured"
        _refuse(options, rule, "point", "validate" if options.validate else "option")


def _check_budget(options: PlanningOptions) -> None:
    """Check options about numbers of devices, their price and a deadline."""
    for name, aims in OF_AIMS.items():
        if getattr(options, name) is not None and options.option not in aims:
            _refuse(options, f"{name} is for {' and '.join(map(repr, aims))}", name, "option")
    if options.memory_limits_bytes is not None and options.memory_limit_bytes is not None:
        rule = "a search has one memory limit, or a list of them for option='profiling'"
        _refuse(options, rule, "memory_limit_bytes", "memory_limits_bytes")
    if (options.samples is None) != (options.deadline_seconds is None):
        rule = "a deadline is a number of samples and the seconds for all of them"
        _refuse(options, rule, "samples", "deadline_seconds", remedy="give both")
    if options.samples is not None and options.max_step_seconds is not None:
        _refuse(options, "a step has one deadline", "max_step_seconds", "samples")
