"""Dry runs while planning has time. They take longer than most searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.plan import Plan
from tensoropt.planner.prices.estimates import can_be_estimated
from tensoropt.planner.request import Request
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.rewritten.application import Rewrite
from tensoropt.transformations.staged.order_of_passes import Schedule, until_it_repeats

__all__ = ["NO_TIME", "LatePlans", "dry_runs_in_time", "emitted_operators", "is_quick_to_emit"]

NO_TIME = "search_seconds were over; allow more"
"""The reason in place of a peak for which there was no time."""

_EMITTED_OPERATORS = 4_000
"""The most operators that are quick to emit, in some seconds."""

_LATE_PLANS = 4
"""The most plans that have dry runs after the time is over, once all offers are known."""


class LatePlans:
    """The plans that have dry runs after the time is over.

    While offers are being searched, it is a single plan. Then it is some more: either the plan
    before does not fit, or an offer is cheaper than the plan that does.
    """

    def __init__(self) -> None:
        self._most, self._count = 1, 0
        self._last: object = None

    def end_search(self) -> None:
        """Allow more plans: all offers are known."""
        self._most = _LATE_PLANS

    def peak(self, planned: object, run: Callable[[], Peak | str]) -> Peak | str:
        """Return the peak of a dry run of a plan, or the reason why there is none."""
        if planned is not self._last and not seconds_left():
            if self._count >= self._most:
                return NO_TIME
            self._last = planned
            self._count += 1
        return run()


def emitted_operators(
    request: Request, microbatches: int, schedule: Schedule = "1f1b", stages: int = 1
) -> int:
    """Return the number of operators that a dry run emits, at most."""
    return len(request.graph) * until_it_repeats(schedule, 0, stages, microbatches)


def is_quick_to_emit(
    request: Request, microbatches: int, schedule: Schedule = "1f1b", stages: int = 1
) -> bool:
    """Whether a dry run takes only some seconds, so that its result can bound searches."""
    return emitted_operators(request, microbatches, schedule, stages) <= _EMITTED_OPERATORS


def dry_runs_in_time(request: Request, late: LatePlans) -> Request:
    """Return a request that makes dry runs until the time of the current `Watch` is over.

    A plan near the memory limit needs dry runs, so ``late`` plans have theirs after that. If a step
    cannot be estimated, all its dry runs are made, since nothing else tells whether it fits.
    """
    dry_run, of_stage = request.dry_run_peak, request.stage_peak

    def peak(
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        steps: PlanSteps,
        microbatches: int,
        rewrites: Sequence[Rewrite],
    ) -> Peak | str:
        assert dry_run is not None, "the request has dry runs"
        run = partial(dry_run, mesh, planned, steps, microbatches, rewrites)
        return late.peak(planned, run)

    def stage_peak(plan: Plan, stage: int) -> Peak | str:
        assert of_stage is not None, "the request has dry runs of stages"
        return late.peak(plan, partial(of_stage, plan, stage))

    if not can_be_estimated(request):
        return request
    return replace(
        request,
        dry_run_peak=None if dry_run is None else peak,
        stage_peak=None if of_stage is None else stage_peak,
    )
