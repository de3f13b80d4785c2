"""``summary`` and ``compare``: predicted and measured costs of a run."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.errors import StateError
from tensoropt.frontend.job.job import Running, current
from tensoropt.plan import comparison
from tensoropt.plan.comparison import Comparison, InputShare
from tensoropt.plan.validation_result import Validation

__all__ = ["compare", "costs", "summary"]


def compare() -> Comparison:
    """Compare predicted and measured costs of the current plan's steps on this rank.

    The first step, which gives variables their values, is left out. Print the result, or read its
    ``quantities`` and ``advice``.

    Raises:
        StateError: before `build_execution_graph`.
    """
    running = current().running
    if running is None or running.plan is None:
        raise StateError(
            "the steps of a plan are compared with its predictions. Got compare before there is "
            "a plan; call build_execution_graph, and run some steps first."
        )
    return comparison.compare(running.plan, running.steps)


def costs(running: Running) -> dict[str, object]:
    """Time, network, memory and advice on differences, under the names of `summary`.

    Args:
        running: a graph with a plan.
    """
    plan = running.plan
    assert plan is not None
    compared = comparison.compare(plan, running.steps)
    step, network, peak = compared.quantities
    return {
        "predicted_step_seconds": plan.predicted_step_seconds,
        "measured_step_seconds": None if step.measured is None else step.measured / 1e3,
        "predicted_network_seconds": plan.predicted_network_seconds,
        "measured_network_seconds": None if network.measured is None else network.measured / 1e3,
        "predicted_peak_bytes": None if peak.predicted is None else round(peak.predicted * 2**20),
        "measured_peak_bytes": None if peak.measured is None else round(peak.measured * 2**20),
        "advice": compared.advice,
        **_input_wait(running.input_wait),
    }


def _input_wait(wait: InputShare | None) -> dict[str, object]:
    """The time in which steps waited for input; empty if it is not measured."""
    return {} if wait is None else {"input_wait_share": wait.share, "input_wait_rank": wait.rank}


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
            ``predicted_peak_bytes`` and ``measured_peak_bytes``, see `compare`; ``advice`` for
            predictions that were off by more than 20 %. If `find_strategy` measured candidates,
            ``validation``: the adopted candidate, the number of comparisons, how many of them
            contradicted the prediction, and predicted and measured times of the candidates. After
            ``fit`` on several ranks, ``input_wait_share``, the part of its steps' time in which a
            rank waited for input, and ``input_wait_rank``, the rank that waited longest.
        """
        job = current()
        nothing = {"predicted_step_seconds": None, "measured_step_seconds": None}
        running, plan = job.running, job.plan
        compared: dict[str, object] = {**nothing}
        if running is not None and plan is not None:
            compared = costs(running) | _validated(plan.validation)
        return {
            "ranks": job.devices if plan is None else plan.devices,
            "world": "mpi" if job.is_mpi else "single-process",
            **compared,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(tf.compat.v1.summary, name)


summary = _Summary()
