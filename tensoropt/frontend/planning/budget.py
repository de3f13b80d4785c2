"""The budget of a request: numbers of devices, their price and a deadline."""

from __future__ import annotations

from contextlib import suppress
from math import ceil

from tensoropt.errors import LayoutError, OptionError
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import Budget, Request

__all__ = ["budget_of"]


def budget_of(request: Request, options: PlanningOptions) -> Budget:
    """The budget that some options give.

    Args:
        request: a request for the job's devices.
        options: options for "profiling" or "mini_cost".

    Raises:
        OptionError: ``samples`` for a step that is fed no batch; for "mini_cost", numbers of
            devices that are all above the job's.
    """
    most = request.devices
    counts = options.parallelism
    if counts is None:
        counts = _default_counts(request, options.stages or 1)
    elif options.option == "mini_cost":
        counts = tuple(count for count in counts if count <= most)
    if not counts:
        raise OptionError(
            f"'mini_cost' plans for at most the job's {devices_of(most)}. Got parallelism="
            f"{list(options.parallelism or ())}; start more ranks, or give smaller numbers."
        )
    seconds = _step_seconds(options, request.examples)
    return Budget(options.device_hour_cost, seconds, tuple(counts))


def _step_seconds(options: PlanningOptions, examples: int | None) -> float | None:
    """The longest step in seconds that meets the deadline."""
    if options.samples is None or options.deadline_seconds is None:
        return options.max_step_seconds
    if examples is None:
        raise OptionError(
            "samples are counted by the batch that a step is fed. Got a step that is fed none; "
            "give max_step_seconds instead."
        )
    return options.deadline_seconds / ceil(options.samples / examples)


def _default_counts(request: Request, stages: int) -> tuple[int, ...]:
    """1, 2, 4, ... devices and the job's number of devices.

    Leaves out numbers that the cluster cannot give, and numbers below the number of stages.
    """
    most = request.devices
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    counts = []
    for count in powers:
        with suppress(LayoutError):  # the cluster cannot give this number of devices
            request.cluster_at(count).level_counts(count)
            if count >= stages:
                counts.append(count)
    return (*counts, most)
