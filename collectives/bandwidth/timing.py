"""Statistics of repeated measurements, and the processor time of ranks that share cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collectives.group import Group, job_facts

__all__ = ["Timing", "clocked", "seconds_taken", "timing"]

_Result = TypeVar("_Result")
_FAR = 1.5
"""A value is an outlier if it lies more than this many interquartile ranges outside the quartiles
(Tukey)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A repeated measurement.

    Attributes:
        seconds: the median.
        spread: interquartile range divided by the median.
        runs: number of repetitions.
        outliers: number of repetitions far outside the quartiles (Tukey's 1.5 ranges).
    """

    seconds: float
    spread: float
    runs: int
    outliers: int


def timing(seconds: npt.ArrayLike) -> Timing:
    """Return the statistics of one or more repeated measurements in seconds."""
    values = np.asarray(seconds, np.float64)
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    margin = _FAR * (high - low)
    outliers = int(((values < low - margin) | (values > high + margin)).sum())
    return Timing(float(median), float((high - low) / median), len(values), outliers)


def seconds_taken(processor_seconds: npt.ArrayLike, everyone: Group) -> npt.NDArray[np.float64]:
    """Return the processor time of collectives on a machine whose ranks share cores.

    A rank that waits leaves its core to another rank, which computes or runs its own part of the
    collective. So a collective takes less time from other work than passes between the arrival of
    the last rank and its end: the processor time, divided by the cores that a rank has. All ranks
    call this.

    Args:
        processor_seconds: of this rank in each collective.
        everyone: the ranks.

    Returns:
        For each collective the mean over ranks of its processor seconds, divided by the number of
        cores that a rank has, or by one where a rank has more.
    """
    cores = float(job_facts().core_share(everyone.ranks[everyone.rank]))
    own = np.asarray(processor_seconds, np.float64) / min(1.0, cores)
    mean: npt.NDArray[np.float64] = everyone.allreduce(own, "sum") / everyone.size
    return mean


def clocked(run: Callable[[], _Result], clock: Callable[[], float]) -> tuple[_Result, float]:
    """Return the result of a call, and its duration by a clock."""
    started = clock()
    result = run()
    return result, clock() - started
