"""The memory peaks of a pipeline's stages, and the fastest plan whose peaks fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tensoropt.errors import InfeasibleError
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.dry_run_bounds import SUM
from tensoropt.plan.plan import Plan
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.plans.fallbacks import is_demanded, left_out
from tensoropt.planner.prices.dry_runs import NO_TIME
from tensoropt.planner.request import Request
from tensoropt.search.watch import seconds_left

__all__ = ["UnmadePlan", "failed_in_dry_run", "fitting_plan", "has_dry_runs", "with_peaks"]


class UnmadePlan(NamedTuple):
    """A plan that has not been made yet.

    Attributes:
        memory: its bytes, as the search adds them up.
        make: returns the plan.
        kind: candidates of the same kind have peaks that exceed ``memory`` by about as much.
    """

    memory: int
    make: Callable[[], Plan]
    kind: int = 0


_LARGE = 0.9
"""A stage with at least this share of the largest stage's memory may have the highest peak."""
_LARGE_AGAIN = 0.7
"""The same share for a stage with recomputation, whose peak is further above its memory."""
_LEAST_TRIED, _MOST_TRIED = 2, 6
"""The fewest and the most candidates of a kind that are tried."""
_EMITTED_OPERATORS = 8000
"""The approximate number of operators that all dry runs of a choice emit."""


def with_peaks(request: Request, plan: Plan) -> Plan:
    """Return a plan of stages with the peaks that dry runs predict.

    A dry run of a stage takes about as long as building its execution graph, so only stages with
    much memory have one, the largest first. A peak above the limit is the last one: then the plan
    does not fit, and ``peak_bytes`` is at least this peak.

    Stages on devices with more memory count in proportion (`Request.counted_bytes`).

    If the plan is far below the memory limit and the request saves dry runs, its peak is estimated:
    it is the memory of the largest stage. If the script demands stages, dry runs are made even
    then. Otherwise the start of the job might fail to emit the plan, and no other could replace it.

    Raises:
        InfeasibleError: there is no time for the dry runs.
    """
    if request.stage_peak is None:
        return plan
    most, stages = plan.memory_bytes, list(plan.stages)
    if not has_dry_runs(request, most):
        return replace(plan, peak_bytes=most, peak_is_estimated=True)
    peaks: list[int] = []
    counted = [
        request.counted_bytes(stage.memory_bytes, plan.devices_of_stage(number))
        for number, stage in enumerate(stages)
    ]
    for number in sorted(range(len(stages)), key=lambda number: -counted[number]):
        stage = stages[number]
        if counted[number] < (_LARGE_AGAIN if stage.recompute else _LARGE) * most:
            continue
        peak = request.stage_peak(plan, number)
        if peak == NO_TIME:
            raise InfeasibleError(f"the peaks of its stages are unknown: {NO_TIME}")
        if isinstance(peak, str):
            note = f"peak memory is unknown: its dry run failed ({peak})"
            return replace(plan, notes=(*plan.notes, note))
        stages[number] = replace(stage, peak_bytes=peak.bytes)
        peaks.append(request.counted_bytes(peak.bytes, plan.devices_of_stage(number)))
        if peaks[-1] > request.limit_bytes(request.devices):
            break
    return replace(plan, stages=tuple(stages), peak_bytes=max(peaks))


def has_dry_runs(request: Request, memory: int) -> bool:
    """Whether `with_peaks` makes dry runs for a plan with these bytes, as the search adds up."""
    if request.stage_peak is None:
        return False
    is_far_below = SUM * memory <= request.limit_bytes(request.devices)
    return not is_far_below or not request.saves_dry_runs or is_demanded(request)


def failed_in_dry_run(request: Request, plan: Plan) -> bool:
    """Whether a stage of a plan could not be emitted, so that its peaks are unknown."""
    return bool(plan.stages) and request.stage_peak is not None and plan.peak_bytes is None


def _with_reasons(plan: Plan, not_emitted: Plan | None, refused: Exception | None) -> Plan:
    """Return a plan with notes that say why faster plans were not taken."""
    reasons = [] if not_emitted is None else [not_emitted.notes[-1]]
    reasons += [] if refused is None else [first_line(refused)]
    return replace(plan, notes=(*plan.notes, *map(left_out, reasons)))


def fitting_plan(request: Request, candidates: Sequence[UnmadePlan]) -> Plan:
    """Return the first plan that can be executed and whose peak fits the memory limit.

    If a candidate cannot be made, or its dry run fails, the next one is tried, and a note says why.
    If no dry run succeeds, the first plan is returned.

    If a peak exceeds the limit, candidates of the same kind are skipped until their memory is lower
    by the excess. The last candidate is always tried. When the time of the search is over, no
    further one is tried, but at least one is.

    Args:
        request: the step and its memory limit.
        candidates: at least one, the fastest first. Those of a kind have descending memory.

    Raises:
        InfeasibleError: all peaks are too high; the error names the lowest.
        Exception: no candidate can be made; it is the error of the first.
    """
    limit = request.limit_bytes(request.devices)
    attempts = _EMITTED_OPERATORS // max(len(request.graph), 1)
    attempts = max(_LEAST_TRIED, min(_MOST_TRIED, attempts))
    refused: Exception | None = None
    lowest: Plan | None = None
    not_emitted: Plan | None = None
    attempts_left: defaultdict[int, int] = defaultdict(lambda: attempts)
    most_bytes: dict[int, int] = {}
    for number, (memory, make, kind) in enumerate(candidates):
        is_last = number == len(candidates) - 1
        if (memory > most_bytes.get(kind, memory) or attempts_left[kind] < 1) and not is_last:
            continue
        if (refused or lowest or not_emitted) and not seconds_left():
            break
        attempts_left[kind] -= 1
        try:
            plan = make()
        except Exception as error:
            refused = refused or error
            continue
        if failed_in_dry_run(request, plan):
            not_emitted = not_emitted or plan
            continue
        excess = (plan.peak_bytes or 0) - limit
        if excess <= 0:
            return _with_reasons(plan, not_emitted, refused)
        most_bytes[kind] = memory - excess
        if lowest is None or excess < (lowest.peak_bytes or 0) - limit:
            lowest = plan
    if lowest is not None:
        raise _too_high(request, lowest)
    if not_emitted is not None:
        return not_emitted
    assert refused is not None, "there are candidates"
    raise refused


def _too_high(request: Request, lowest: Plan) -> InfeasibleError:
    """Return the error for candidates whose peaks exceed the limit; one has the lowest peak."""
    return InfeasibleError(
        "a step's peak memory is at most the memory limit of a device, "
        f"{bytes_of(request.limit_bytes(request.devices))}. Got a peak of "
        f"{bytes_of(lowest.peak_bytes or 0)}{' in a stage' if lowest.stages else ''}, the lowest "
        f"of the plans that were tried on {devices_of(request.devices)}. Try more microbatches, "
        "more devices, or a higher limit."
    )
