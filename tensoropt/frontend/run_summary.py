"""What a run was, in numbers, for the last line that a training script prints."""

from __future__ import annotations

import statistics
from typing import Any

import tensorflow as tf

from tensoropt.frontend.job import current

__all__ = ["summary"]


class _Summary:
    """``tf.compat.v1.summary`` that can also be called: scripts use both under one name."""

    def __call__(self) -> dict[str, object]:
        """Ranks, world, and predicted against measured time of a training step.

        Returns:
            ``ranks`` (number of devices), ``world`` ("mpi" or "single-process"),
            ``predicted_step_seconds`` and ``measured_step_seconds`` (median over the runs that
            fetched an operator, the first left out, since it builds the execution graph; None
            before there are any).
        """
        job = current()
        steps = job.step_seconds[1:]
        return {
            "ranks": job.plan.devices if job.plan is not None else job.devices,
            "world": "mpi" if job.is_mpi else "single-process",
            "predicted_step_seconds": job.plan.predicted_step_seconds if job.plan else None,
            "measured_step_seconds": statistics.median(steps) if steps else None,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(tf.compat.v1.summary, name)


summary = _Summary()
