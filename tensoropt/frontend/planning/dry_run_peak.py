"""The peak memory of a strategy, from a dry run of the first rank's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tensoropt.cost.peak.device_program import DeviceProgram
from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run, dry_run_stage
from tensoropt.frontend.job.plan_executor import pipeline_on
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan import Plan
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.request import DryRunPeak, StagePeak
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["dry_run_peak", "stage_peak"]


def dry_run_peak(step: ScriptStep) -> DryRunPeak:
    """The function that predicts the peak memory of a strategy of this step, on this rank alone."""

    def peak(
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        plan_steps: PlanSteps,
        microbatches: int,
        rewrites: Sequence[Rewrite],
    ) -> Peak | str:
        parts = replace(_rewritten(step, rewrites), microbatches=microbatches)
        return _peak_of(lambda: dry_run(parts, mesh, planned, plan_steps))

    return peak


def stage_peak(step: ScriptStep) -> StagePeak:
    """The function that predicts the peak memory of a stage of a plan, on this rank alone."""

    def peak(plan: Plan, stage: int) -> Peak | str:
        meshes = [stage_plan.mesh for stage_plan in plan.stages]
        parts = _rewritten(step, plan.rewrites)
        return _peak_of(lambda: dry_run_stage(parts, meshes, stage, partial(pipeline_on, plan)))

    return peak


def _rewritten(step: ScriptStep, rewrites: Sequence[Rewrite]) -> ScriptStep:
    """The step after substitutions."""
    return replace(step, options=replace(step.options, rewrites=tuple(rewrites)))


def _peak_of(emit: Callable[[], DeviceProgram]) -> Peak | str:
    """The peak of an emitted program, or the reason why the program cannot be emitted."""
    try:
        return program_peak(emit())
    except Exception as error:
        return first_line(error)
