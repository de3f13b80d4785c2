"""A step, a number of devices and a memory limit: the plan of the default and of each option
alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from benchmarks.composition.options import ALONE, DEFAULT, PLAIN, combined, requested
from benchmarks.composition.shared import ChargedResults
from tensoropt.cost.peak.estimated_peak import peak_memory
from tensoropt.errors import InfeasibleError
from tensoropt.garbage import collected_later
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.search.baselines import data_parallel

__all__ = ["LIMITS", "Cell", "cells_of", "data_parallel_bytes", "summary"]

LIMITS = (None, 0.6, 0.3, 0.12)
"""Shares of the memory of data parallelism; None for ten times the device's own memory."""
_AMPLE = 10
_NOTABLE = 1.05


@dataclass(frozen=True, slots=True)
class Cell:
    """The plans of one cell.

    Attributes:
        model: name of a model of `benchmarks.composition.models.NAMES`.
        devices: number of devices.
        limit: an element of `LIMITS`.
        alone: for each option the predicted nanoseconds of a step; None if nothing fits.
        default: the predicted nanoseconds of the default's step; None if nothing fits.
        spaces: the spaces that the default's plan combines.
        seconds: CPU seconds of planning by each option alone and by the default, as if each were
            planned in a process of its own.
    """

    model: str
    devices: int
    limit: float | None
    alone: Mapping[str, int | None]
    default: int | None
    spaces: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def best(self) -> int | None:
        """Nanoseconds of the fastest option alone; None if none fits."""
        return min((time for time in self.alone.values() if time is not None), default=None)

    @property
    def is_worse(self) -> bool:
        """Whether an option alone is faster by more than the resolution of predictions, or fits
        alone."""
        if self.best is None:
            return False
        return self.default is None or self.default > (1 + SAME_TIME) * self.best

    @property
    def gain(self) -> float | None:
        """The fastest option's time divided by the default's; None if one of them does not fit."""
        return None if self.best is None or self.default is None else self.best / self.default

    @property
    def fits_only_combined(self) -> bool:
        """Whether the default fits and no option alone does."""
        return self.best is None and self.default is not None

    @property
    def is_notable(self) -> bool:
        """Whether only a combination fits, or is at least 5 % faster."""
        return self.fits_only_combined or (self.gain or 0) >= _NOTABLE

    def __str__(self) -> str:
        times = {**self.alone, DEFAULT: self.default}
        told = "  ".join(
            f"{name} {'-' if time is None else f'{time / 1e6:.3f}'}" for name, time in times.items()
        )
        limit = "ample" if self.limit is None else f"{self.limit:.0%}"
        worse = "  WORSE" if self.is_worse else ""
        spaces = " + ".join(self.spaces) or "whole batch"
        return (
            f"{self.model:18}{self.devices:3} {limit:>5}  {told} ms  {spaces} "
            f"({self.seconds[DEFAULT]:.1f} s, plain {self.seconds[PLAIN]:.1f} s){worse}"
        )

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON values."""
        return asdict(self)


@collected_later()  # like `find_strategy`
def cells_of(
    model: str, request: Request, limits: Sequence[float | None] = LIMITS
) -> Iterator[Cell]:
    """The cells of a step on its devices. They share searches, see `ChargedResults`.

    Args:
        model: name of the step.
        request: the request without options and memory limit.
        limits: shares of the memory of data parallelism.
    """
    results = ChargedResults()
    request = results.with_shared_dry_runs(replace(request, saves_dry_runs=True))
    parallel = data_parallel_bytes(request)
    with results.shared():
        for limit in limits:
            share = _AMPLE if limit is None else limit
            own = replace(request, memory_limit_bytes=int(share * parallel))
            plans: dict[str, Plan | None] = {}
            seconds: dict[str, float] = {}
            for option in (*ALONE, DEFAULT):
                begun = results.clock()
                plans[option] = _planned(requested(own, option))
                seconds[option] = results.clock() - begun
            times = {
                option: None if plan is None else plan.executed_nanoseconds
                for option, plan in plans.items()
            }
            found, plan = times.pop(DEFAULT), plans[DEFAULT]
            spaces = () if plan is None else tuple(combined(plan))
            yield Cell(model, request.devices, limit, times, found, spaces, seconds)


def data_parallel_bytes(request: Request) -> int:
    """The least memory with which data parallelism fits a device, by an estimate of its peak.

    A step with gradients of gradients has no estimate; then the sum of the search counts.
    """
    problem = problem_of(request, request.devices)
    (point,) = data_parallel.solve(problem)
    strategy = request.strategy(problem, point.strategy.tolist())
    factor = request.cluster_at(request.devices).safety_factor
    held = int(point.memory * factor) + 1
    if differentiates_gradients(request.graph):
        return held
    return max(held, peak_memory(strategy, request.reads).bytes)


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """The counts of the last line."""
    gains = [(cell, cell.gain) for cell in cells]
    known = [(cell, gain) for cell, gain in gains if gain is not None]
    tight = [gain for cell, gain in known if cell.limit is not None]
    return {
        "cells": len(cells),
        "default_worse_than_an_option": sum(cell.is_worse for cell in cells),
        "combined": sum(len(cell.spaces) > 1 for cell in cells),
        "largest_gain": round(max((gain for _, gain in known), default=0.0), 3),
        "median_gain_tight": round(median(tight), 3) if tight else None,
        "fits_only_combined": sum(cell.fits_only_combined for cell in cells),
    }


def _planned(request: Request) -> Plan | None:
    try:
        return choose(request, "mini_time")
    except InfeasibleError:
        return None
