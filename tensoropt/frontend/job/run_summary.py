"""``summary``: predicted and measured costs of a run, for the end of a training script."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.frontend.job.job import current
from tensoropt.plan import Plan
from tensoropt.plan.validation_result import Validation

__all__ = ["costs", "summary"]


def costs(plan: Plan) -> dict[str, object]:
    """Time, network, memory and advice on differences, under the names of `summary`."""
    comparison = plan.compare()
    step, network, peak = comparison.quantities
    return {
        "predicted_step_seconds": plan.predicted_step_seconds,
        "measured_step_seconds": None if step.measured is None else step.measured / 1e3,
        "predicted_network_seconds": plan.predicted_network_seconds,
        "measured_network_seconds": None if network.measured is None else network.measured / 1e3,
        "predicted_peak_bytes": None if peak.predicted is None else round(peak.predicted * 2**20),
        "measured_peak_bytes": None if peak.measured is None else round(peak.measured * 2**20),
        "advice": comparison.advice,
    }


def _validated(validation: Validation | None) -> dict[str, object]:
    """Measured candidates; empty if none was measured."""
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
        """Ranks, world, and predicted and measured costs of a training step.

        Returns:
            ``ranks`` (number of devices), ``world`` ("mpi" or "single-process"),
            ``predicted_step_seconds`` and ``measured_step_seconds`` (median over the runs of the
            whole step, except the first, which builds the execution graph; None if there are no
            such runs); likewise ``predicted_network_seconds``, ``measured_network_seconds``,
            ``predicted_peak_bytes`` and ``measured_peak_bytes``, see `Plan.compare`; ``advice`` for
            predictions that were off by more than 20 %. If `find_strategy` measured candidates,
            ``validation``: the adopted candidate, the number of comparisons, how many of them
            contradicted the prediction, and predicted and measured times of the candidates.
        """
        job = current()
        nothing = {"predicted_step_seconds": None, "measured_step_seconds": None}
        plan = job.plan
        compared = nothing if plan is None else costs(plan) | _validated(plan.validation)
        return {
            "ranks": job.devices if plan is None else plan.devices,
            "world": "mpi" if job.is_mpi else "single-process",
            **compared,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(tf.compat.v1.summary, name)


summary = _Summary()
