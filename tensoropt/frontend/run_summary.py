"""What a run was, in numbers, for the last line that a training script prints."""

from __future__ import annotations

import statistics
from typing import Any

import tensorflow as tf

from tensoropt.frontend.job import current
from tensoropt.plan import Plan
from tensoropt.plan.validation import Validation

__all__ = ["summary"]


def _costs(plan: Plan) -> dict[str, object]:
    """Network, memory, and what to do about differences."""
    comparison = plan.compare()
    _, network, peak = comparison.quantities
    return {
        "predicted_network_seconds": plan.predicted_network_seconds,
        "measured_network_seconds": None if network.measured is None else network.measured / 1e3,
        "predicted_peak_bytes": plan.peak_bytes,
        "measured_peak_bytes": None if peak.measured is None else round(peak.measured * 2**20),
        "advice": comparison.advice,
    }


def _validated(validation: Validation | None) -> dict[str, object]:
    """What measuring candidates found; nothing where none was measured."""
    if validation is None:
        return {}
    trials = [
        {
            "name": trial.name,
            "predicted_step_seconds": trial.time_nanoseconds / 1e9,
            "measured_step_seconds": trial.measured_seconds,
            "dropped": trial.dropped,
        }
        for trial in validation.trials
    ]
    return {
        "validation": {
            "adopted": validation.trials[validation.adopted].name,
            "overruled": validation.overruled,
            "comparisons": validation.comparisons,
            "candidates": trials,
        }
    }


class _Summary:
    """``tf.compat.v1.summary`` that can also be called: scripts use both under one name."""

    def __call__(self) -> dict[str, object]:
        """Ranks, world, and predicted against measured costs of a training step.

        Returns:
            ``ranks`` (number of devices), ``world`` ("mpi" or "single-process"),
            ``predicted_step_seconds`` and ``measured_step_seconds`` (median over the runs that
            fetched an operator, the first left out, since it builds the execution graph; None
            before there are any); ``predicted_network_seconds``, ``measured_network_seconds`` and
            ``predicted_peak_bytes``, ``measured_peak_bytes`` likewise, see `Plan.compare`;
            ``advice``, what to do where a prediction was off by more than 20 %. Where
            `find_strategy` measured candidates, ``validation``: which one was adopted, how often
            measuring overruled the prediction, of how many comparisons, and the candidates'
            predicted and measured times.
        """
        job = current()
        steps = job.step_seconds[1:]
        compared = {} if job.plan is None else _costs(job.plan) | _validated(job.plan.validation)
        return {
            "ranks": job.plan.devices if job.plan is not None else job.devices,
            "world": "mpi" if job.is_mpi else "single-process",
            "predicted_step_seconds": job.plan.predicted_step_seconds if job.plan else None,
            "measured_step_seconds": statistics.median(steps) if steps else None,
            **compared,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(tf.compat.v1.summary, name)


summary = _Summary()
