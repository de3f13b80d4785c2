"""The arguments of ``find_strategy`` about numbers of devices, their price and a deadline."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, inf
from numbers import Integral, Real

from tensoropt.errors import LayoutError, OptionError
from tensoropt.frontend.job.dry_run import DryRun
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.request import Budget, Request

__all__ = ["BUDGETED", "BudgetArguments"]

BUDGETED = ("profiling", "mini_cost")
"""Options that consider several numbers of devices and the price of each."""
_OPTIONS_OF = {
    "parallelism": BUDGETED,
    "memory_limits_bytes": ("profiling",),
    "device_hour_cost": BUDGETED,
    "max_step_seconds": ("mini_cost",),
    "samples": ("mini_cost",),
    "deadline_seconds": ("mini_cost",),
}
"""The options that accept each argument."""


@dataclass(frozen=True, slots=True)
class BudgetArguments:
    """Arguments of `find_strategy`; None for an argument that is not given.

    Attributes:
        parallelism: numbers of devices, ascending.
        memory_limits_bytes: memory limits of one device, ascending.
        device_hour_cost: price of one device for an hour.
        max_step_seconds: the longest step allowed.
        samples: number of samples to process within the deadline.
        deadline_seconds: time for all samples.
    """

    parallelism: tuple[int, ...] | None = None
    memory_limits_bytes: tuple[int, ...] | None = None
    device_hour_cost: float | None = None
    max_step_seconds: float | None = None
    samples: float | None = None
    deadline_seconds: float | None = None

    @classmethod
    def of(
        cls,
        parallelism: Iterable[int] | None,
        memory_limits_bytes: Iterable[int] | None,
        device_hour_cost: float | None,
        max_step_seconds: float | None,
        samples: float | None,
        deadline_seconds: float | None,
    ) -> BudgetArguments:
        """The arguments as a user gives them to `find_strategy`."""
        return cls(
            _ascending("parallelism", parallelism),
            _ascending("memory_limits_bytes", memory_limits_bytes),
            device_hour_cost,
            max_step_seconds,
            samples,
            deadline_seconds,
        )

    def of_dry_run(self, dry_run: DryRun) -> BudgetArguments:
        """The arguments for "profiling" in a dry run, whose values replace the script's."""
        limits = None if dry_run.memory_limit_bytes else self.memory_limits_bytes
        return BudgetArguments(
            _ascending("parallelism", dry_run.parallelism or None) or self.parallelism,
            _ascending("memory_limits_bytes", dry_run.memory_limits or None) or limits,
            dry_run.device_hour_cost or self.device_hour_cost,
        )

    def check(self, option: str, memory_limit_bytes: int | None) -> None:
        """Check each value, and that the option accepts the argument.

        Raises:
            OptionError: an argument that the option does not accept, or that contradicts another
                argument; a number that is not above 0.
        """
        for name, options in _OPTIONS_OF.items():
            value = getattr(self, name)
            if value is not None and option not in options:
                takers = " and ".join(map(repr, options))
                raise OptionError(
                    f"{name} is for {takers}. Got {name}={value!r} with option={option!r}; leave "
                    "one of the two out."
                )
            if value is not None and not isinstance(value, tuple):
                _check_positive(name, value)
        if self.memory_limits_bytes is not None and memory_limit_bytes is not None:
            raise OptionError(
                "a memory limit is one, or one of several. Got memory_limit_bytes="
                f"{memory_limit_bytes} with memory_limits_bytes={list(self.memory_limits_bytes)}; "
                "leave one of the two out."
            )
        self._check_deadline()

    def _check_deadline(self) -> None:
        if (self.samples is None) != (self.deadline_seconds is None):
            raise OptionError(
                "a deadline is a number of samples and the seconds for all of them. Got samples="
                f"{self.samples} with deadline_seconds={self.deadline_seconds}; give both."
            )
        if self.samples is not None and self.max_step_seconds is not None:
            raise OptionError(
                "a step has one deadline. Got max_step_seconds="
                f"{self.max_step_seconds} with samples={self.samples}; leave one of the two out."
            )

    def budgeted(self, request: Request, option: str, stages: int) -> Request:
        """The request with the budget of these arguments.

        Args:
            request: a request for the job's devices.
            option: one of `BUDGETED`.
            stages: the least number of stages of a plan.

        Raises:
            OptionError: ``samples`` for a step that is fed no batch; for "mini_cost", numbers of
                devices that are all above the job's.
        """
        counts, most = self.parallelism, request.devices
        if counts is None:
            counts = _default_counts(request, stages)
        elif option == "mini_cost":
            counts = tuple(count for count in counts if count <= most)
        if not counts:
            raise OptionError(
                f"'mini_cost' plans for at most the job's {devices_of(most)}. Got parallelism="
                f"{list(self.parallelism or ())}; start more ranks, or give smaller numbers."
            )
        seconds = self._step_seconds(request.examples)
        return replace(request, budget=Budget(self.device_hour_cost, seconds, counts))

    def _step_seconds(self, examples: int | None) -> float | None:
        """The longest step in seconds that meets the deadline."""
        if self.samples is None or self.deadline_seconds is None:
            return self.max_step_seconds
        if examples is None:
            raise OptionError(
                "samples are counted by the batch that a step is fed. Got a step that is fed none; "
                "give max_step_seconds instead."
            )
        return self.deadline_seconds / ceil(self.samples / examples)


def _ascending(name: str, values: Iterable[int] | None) -> tuple[int, ...] | None:
    """The distinct numbers of an argument, ascending.

    Raises:
        OptionError: no number, or a value that is not a whole number from 1.
    """
    if values is None:
        return None
    numbers = list(values)
    for value in numbers:
        if isinstance(value, bool) or not (isinstance(value, Integral) and value >= 1):
            raise OptionError(
                f"{name} takes whole numbers from 1. Got {value!r}; correct it, or leave it out."
            )
    if not numbers:
        raise OptionError(
            f"{name} takes at least one number. Got none; give some, or leave it out."
        )
    return tuple(sorted({int(value) for value in numbers}))


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < inf:
        raise OptionError(
            f"{name} is a number above 0. Got {value!r}; correct it, or leave it out."
        )


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
