"""Ranks of different speed: the pace of each rank, measured at the first planning.

Ranks that are bound to cores differ if a core is shared by more of them than another, or with other
programs. Ranks that may use the same cores of one machine are equally fast. A job that plans
nothing, or names a cluster, does without the measurement.
"""

from __future__ import annotations

import os
import sys

from tensoropt.cost.measured_links import MeasuredPace, kinds_of_paces
from tensoropt.errors import OptionError
from tensoropt.frontend.job.hardware import rank_config
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.settings import RANK_SPEEDS_VARIABLE
from tensoropt.frontend.measuring.pace import measure_paces

__all__ = ["know_paces"]

_ROUNDS = 2
"""Ranks differ only if they do in each round. One round may be disturbed by other programs."""
_CHOICES = ("measure", "equal")


def know_paces(job: Job) -> None:
    """Measure the pace of each rank of a job, once, unless the user takes ranks as equal.

    Nothing happens in one process, for a named cluster, or where ranks share all cores. Every rank
    calls.

    Raises:
        OptionError: if the environment variable has another value than "measure" or "equal".
    """
    if not job.is_mpi or job.paces is not None or job.group.size == 1:
        return
    wanted = os.environ.get(RANK_SPEEDS_VARIABLE, _CHOICES[0])
    if wanted not in _CHOICES:
        raise OptionError.one_of(RANK_SPEEDS_VARIABLE, wanted, _CHOICES)
    measures = job.cluster is None and wanted == _CHOICES[0] and not job.hardware.shares_cores
    settings = job.agreement.gather("find_strategy()", measures)
    job.paces = ()
    if not all(settings):
        return
    rounds = measure_paces(job.group, rank_config(job.hardware), _ROUNDS)
    mean = tuple(map(_mean, zip(*rounds, strict=True)))
    kinds = [kinds_of_paces(paces) for paces in (*rounds, mean)]
    if min(map(len, kinds)) == 1:
        return
    job.paces = mean
    if job.group.rank == 0:
        sys.stderr.write(f"tensoropt: ranks compute at different speeds: {_listed(mean)}\n")


def _mean(paces: tuple[MeasuredPace, ...]) -> MeasuredPace:
    """Return the mean pace of a rank over rounds."""
    return MeasuredPace(
        round(sum(pace.flops_per_second for pace in paces) / len(paces)),
        round(sum(pace.bytes_per_second for pace in paces) / len(paces)),
    )


def _listed(paces: tuple[MeasuredPace, ...]) -> str:
    """Return the paces of the kinds of ranks in words."""
    return "; ".join(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} at {flops / 1e9:,.0f} GFLOP/s"
        for ranks, flops in kinds_of_paces(paces)
    )
