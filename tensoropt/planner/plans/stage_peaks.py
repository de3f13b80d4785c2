"""The peaks of memory of a pipeline's stages, and the fastest plan whose peaks fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tensoropt.errors import InfeasibleError
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.peak_margin import SUM
from tensoropt.plan.plan import Plan
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.plans.fallbacks import is_demanded, left_out
from tensoropt.planner.request import Request
from tensoropt.search.watch import seconds_left

__all__ = ["Candidate", "failed_in_dry_run", "fitting_plan", "with_peaks"]


class Candidate(NamedTuple):
    """A plan to be made.

    Attributes:
        memory: that the search adds up, in bytes.
        make: makes it.
        kind: of those whose peaks are about as much above that memory.
    """

    memory: int
    make: Callable[[], Plan]
    kind: int = 0


_LARGE = 0.9  # of the memory of the largest stage: such a stage may have the highest peak
_LARGE_AGAIN = 0.7  # likewise where it runs its forward pass again, beside its backward pass
_LEAST_TRIED, _MOST_TRIED = 2, 6
_EMITTED_OPERATORS = 8000
"""In all dry runs of a choice, roughly, as `tensoropt.planner.prices.peak` has it."""


def with_peaks(request: Request, plan: Plan) -> Plan:
    """A plan of stages with their predicted peaks, where a dry run tells them: those of the stages
    that take most memory, as each takes about as long as building the execution graph.

    A plan far below the memory limit has the sum of its largest stage for an estimated peak, where
    the request saves dry runs. A script that demands stages has dry runs of them all the same: no
    other plan could take the place of one that the start of the job fails to emit.
    """
    if request.stage_peak is None:
        return plan
    most, stages = max(stage.memory_bytes for stage in plan.stages), list(plan.stages)
    is_far_below = SUM * most <= request.limit_bytes(request.devices)
    if is_far_below and request.saves_dry_runs and not is_demanded(request):
        return replace(plan, peak_bytes=most, peak_is_estimated=True)
    for number, stage in enumerate(plan.stages):
        if stage.memory_bytes < (_LARGE_AGAIN if stage.recompute else _LARGE) * most:
            continue
        peak = request.stage_peak(plan, number)
        if isinstance(peak, str):
            note = f"peak memory is unknown: its dry run failed ({peak})"
            return replace(plan, notes=(*plan.notes, note))
        stages[number] = replace(stage, peak_bytes=peak.bytes)
    known = [stage.peak_bytes for stage in stages if stage.peak_bytes is not None]
    return replace(plan, stages=tuple(stages), peak_bytes=max(known))


def failed_in_dry_run(request: Request, plan: Plan) -> bool:
    """Whether the peaks of a plan's stages are unknown, as one of them could not be emitted."""
    return bool(plan.stages) and request.stage_peak is not None and plan.peak_bytes is None


def _with_reasons(plan: Plan, not_emitted: Plan | None, refused: Exception | None) -> Plan:
    """A plan with the reasons why faster ones are not taken."""
    reasons = [] if not_emitted is None else [not_emitted.notes[-1]]
    reasons += [] if refused is None else [first_line(refused)]
    return replace(plan, notes=(*plan.notes, *map(left_out, reasons)))


def fitting_plan(request: Request, candidates: Sequence[Candidate]) -> Plan:
    """The first plan that can be executed, and whose peak is at most the memory limit.

    A candidate that cannot be made, or whose dry run fails, gives way to the next one, and a note
    says why. Where no dry run succeeds, the first of these plans is returned.

    Where a peak is higher, what keeps more memory than is left by as much, of the same kind, is
    passed over. The last one is tried whatever was tried before, unless the time of the search is
    over; one is in any case.

    Args:
        request: has the limit.
        candidates: at least one, the fastest first; of a kind, by descending memory.

    Raises:
        InfeasibleError: the peaks are too high; names the lowest one.
        Exception: where none can be made, what making the first of them has raised.
    """
    limit = request.limit_bytes(request.devices)
    several = _EMITTED_OPERATORS // max(len(request.graph), 1)
    several = max(_LEAST_TRIED, min(_MOST_TRIED, several))
    refused: Exception | None = None
    highest: Plan | None = None
    not_emitted: Plan | None = None
    left: defaultdict[int, int] = defaultdict(lambda: several)
    most: dict[int, int] = {}
    for number, (memory, make, kind) in enumerate(candidates):
        is_last = number == len(candidates) - 1
        if (memory > most.get(kind, memory) or left[kind] < 1) and not is_last:
            continue
        if (refused or highest or not_emitted) and not seconds_left():
            break
        left[kind] -= 1
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
        most[kind] = memory - excess
        if highest is None or excess < (highest.peak_bytes or 0) - limit:
            highest = plan
    if highest is None and not_emitted is not None:
        return not_emitted
    if highest is None:
        assert refused is not None, "there are candidates"
        raise refused
    raise InfeasibleError(
        "a step's peak memory is at most the memory limit of a device, "
        f"{bytes_of(limit)}. Got a peak of {bytes_of(highest.peak_bytes or 0)}"
        f"{' in a stage' if highest.stages else ''}, the least of those that were tried on "
        f"{devices_of(request.devices)}. Try more microbatches, more devices, or a higher limit."
    )
