"""The peak memory of a strategy, from a dry run of the program of its first rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tensorflow as tf

from tensoropt.cost.estimated_peak import Peak, PlanSteps
from tensoropt.cost.program_peak import program_peak
from tensoropt.errors import TensorOptError
from tensoropt.execution.dry_run import ScriptStep, dry_run
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.request import DryRunPeak

__all__ = ["dry_run_peak"]

_LONGEST_REASON = 160
_FAILURES = (
    TensorOptError,
    tf.errors.OpError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""What emitting a graph raises that cannot be emitted, in a dry run as in a real one."""


def dry_run_peak(step: ScriptStep) -> DryRunPeak:
    """A function that predicts the peak memory of strategies of a step, on this rank alone."""

    def peak(
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        plan_steps: PlanSteps,
        microbatches: int,
    ) -> Peak | str:
        try:
            parts = replace(step, microbatches=microbatches)
            return program_peak(dry_run(parts, mesh, planned, plan_steps))
        except _FAILURES as error:
            first = (str(error).splitlines() or [""])[0]
            return f"{type(error).__name__}: {first[:_LONGEST_REASON]}"

    return peak
