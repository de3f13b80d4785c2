"""Dry runs while planning has time. They take longer than most searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.plan import Plan
from tensoropt.planner.prices.estimates import can_be_estimated
from tensoropt.planner.request import Request
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["NO_TIME", "dry_runs_in_time", "is_quick_to_emit"]

NO_TIME = "search_seconds were over; allow more"
"""The reason in place of a peak for which there was no time."""

_EMITTED_OPERATORS = 4_000
"""The most operators of a step that is quick to emit, in some seconds."""


def is_quick_to_emit(request: Request, microbatches: int) -> bool:
    """Whether a dry run takes only some seconds, so that its result can bound searches."""
    return len(request.graph) * microbatches <= _EMITTED_OPERATORS


def dry_runs_in_time(request: Request) -> Request:
    """Return a request that makes dry runs until the time of the current `Watch` is over.

    A plan near the memory limit needs dry runs, so those of one more plan are made after that. If a
    step cannot be estimated, all its dry runs are made, since nothing else tells whether it fits.
    """
    late: list[object] = []
    dry_run, of_stage = request.dry_run_peak, request.stage_peak

    def in_time(planned: object) -> bool:
        if not seconds_left() and not late:
            late.append(planned)
        return bool(seconds_left()) or planned is late[0]

    def peak(
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        steps: PlanSteps,
        microbatches: int,
        rewrites: Sequence[Rewrite],
    ) -> Peak | str:
        assert dry_run is not None, "the request has dry runs"
        if not in_time(planned):
            return NO_TIME
        return dry_run(mesh, planned, steps, microbatches, rewrites)

    def stage_peak(plan: Plan, stage: int) -> Peak | str:
        assert of_stage is not None, "the request has dry runs of stages"
        return of_stage(plan, stage) if in_time(plan) else NO_TIME

    if not can_be_estimated(request):
        return request
    return replace(
        request,
        dry_run_peak=None if dry_run is None else peak,
        stage_peak=None if of_stage is None else stage_peak,
    )
