"""The view of a plan: the one entry of this package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tensoropt.cost.peak.held_memory import HOLDERS
from tensoropt.graph.operator import GRADIENT
from tensoropt.plan.operator_plan import NAMES_ONLY
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.transformations.staged.simulated_time import simulated_tasks
from tensoropt.view.communication import communication_of
from tensoropt.view.data.plan_view import (
    Alive,
    MemoryAt,
    MemoryView,
    Pass,
    PassKind,
    PlanView,
    PointKind,
    PointView,
    Share,
    StageView,
)
from tensoropt.view.data.summary import Measured, Summary, TimePart
from tensoropt.view.division import devices_of_plan
from tensoropt.view.layers import Row, row_names, rows_of, with_communication

__all__ = ["view_of"]


def view_of(plan: Plan) -> PlanView:
    """The view of a plan."""
    rows = rows_of(plan)
    communication = communication_of(plan, rows)
    return PlanView(
        summary=_summary(plan),
        layers=with_communication(plan, rows, communication),
        communication=communication,
        memory=memory_of(plan, rows),
        frontier=_points(plan),
        stages=_stages(plan, rows),
        schedule=_schedule(plan),
        measured=_measured(plan),
        notes=plan.notes,
    )


def _summary(plan: Plan) -> Summary:
    computing = [operator for operator in plan.operators if operator.type not in NAMES_ONLY]
    limit = plan.memory_limit_bytes
    return Summary(
        sentence=str(plan),
        option=plan.option,
        algorithm=plan.algorithm,
        way=plan.way,
        cluster=plan.cluster.name,
        devices=plan.devices,
        levels=devices_of_plan(plan).levels,
        operators=len(computing),
        split_operators=sum(operator.is_split for operator in computing),
        step_nanoseconds=plan.executed_nanoseconds,
        network_nanoseconds=round(plan.predicted_network_seconds * 1e9),
        time=_time(plan),
        memory_bytes=plan.memory_bytes,
        peak_bytes=plan.peak_bytes,
        peak_is_estimated=plan.peak_is_estimated,
        memory_limit_bytes=limit,
        device_limit_bytes=None if limit is None else round(limit * plan.cluster.safety_factor),
        microbatches=plan.microbatches,
        schedule=plan.schedule,
        copies=plan.copies,
        compared=plan.compared,
    )


def _time(plan: Plan) -> tuple[TimePart, ...]:
    """The parts of the step, the largest first; for a pipeline, on average over its devices."""
    if plan.stages:
        waiting = round(plan.bubble * plan.executed_nanoseconds)
        working = TimePart("stages at work", plan.executed_nanoseconds - waiting)
        return working, TimePart("waiting for other stages", waiting)
    parts = sorted(plan.details.time, key=lambda part: -part.nanoseconds)
    return tuple(TimePart(*part) for part in parts)


def _stages(plan: Plan, rows: list[Row]) -> tuple[StageView, ...]:
    step = max(plan.executed_nanoseconds, 1)
    return tuple(
        StageView(
            devices=plan.devices_of_stage(number),
            layers=tuple(row.name for row in rows if row.stage == number),
            forward_nanoseconds=stage.forward_nanoseconds,
            backward_nanoseconds=stage.backward_nanoseconds,
            once_nanoseconds=stage.once_nanoseconds,
            waits=max(0.0, 1 - stage.busy_nanoseconds(plan.microbatches) / step),
            memory_bytes=stage.memory_bytes,
            peak_bytes=stage.peak_bytes,
            recompute=stage.recompute,
        )
        for number, stage in enumerate(plan.stages)
    )


def _schedule(plan: Plan) -> tuple[Pass, ...]:
    """The passes of a pipeline, as if each device had its own cores; none for stages side by side,
    of which a plan does not record the parts."""
    if plan.schedule is None or plan.schedule == "side_by_side":
        return ()
    tasks = simulated_tasks(
        plan.schedule,
        plan.microbatches,
        [stage.forward_nanoseconds for stage in plan.stages],
        [stage.backward_nanoseconds for stage in plan.stages],
        [stage.once_nanoseconds for stage in plan.stages],
    )
    kinds: dict[str, PassKind] = {"forward": "forward", "backward": "backward", "once": "once"}
    return tuple(
        Pass(task.stage, kinds[task.kind], task.number, round(task.start), round(task.end))
        for task in tasks
    )


def _measured(plan: Plan) -> tuple[Measured, ...]:
    """The measured costs of the plan's validation, if there was one."""
    if plan.validation is None:
        return ()
    trial = plan.validation.trials[plan.validation.adopted]
    if trial.measured_seconds is None:
        return ()
    peak = trial.measured_peak_bytes
    return (
        Measured("step time", "ms", trial.time_nanoseconds / 1e6, trial.measured_seconds * 1e3),
        Measured(
            "peak memory",
            "MiB",
            None if plan.peak_bytes is None else plan.peak_bytes / 2**20,
            None if peak is None else peak / 2**20,
        ),
    )


_DATA_PARALLELISM = "data parallelism"
_Peak = PointPeak | None


def _points(plan: Plan) -> tuple[PointView, ...]:
    """The points in the order of the memory that is shown for them, the least first. One of them is
    the plan, even if it is not on the frontier."""
    count = len(plan.frontier)
    ways, peaks = plan.frontier_ways or ("",) * count, plan.frontier_peaks or (None,) * count

    def point_of(
        kind: PointKind, name: str, number: int | None, point: tuple[int, int], peak: _Peak
    ) -> PointView:
        (memory, time), (its_peak, source) = point, peak or (None, None)
        fits = plan.fits(memory, its_peak)
        return PointView(kind, name, number, memory, time, its_peak, source, fits)

    own, chosen = plan.point, (plan.memory_bytes, plan.executed_nanoseconds)
    points = [
        point_of("frontier", way, number, point, peak)
        for number, (point, peak, way) in enumerate(zip(plan.frontier, peaks, ways, strict=True))
        if number != own
    ]
    its_peak = _own_peak(plan) if own is None else peaks[own]
    points.append(point_of("plan", plan.way, own, chosen, its_peak))
    for name, memory, time, other in plan.details.others:
        kind: PointKind = "data parallelism" if name == _DATA_PARALLELISM else "other algorithm"
        peak = PointPeak(other, "estimate") if other and plan.frontier_peaks else None
        if (memory, time) == chosen:  # the plan is this strategy, and may know its peak better
            peak = its_peak
        points.append(point_of(kind, name, None, (memory, time), peak))
    return tuple(sorted(points, key=lambda point: (point.shown_bytes, point.nanoseconds)))


def _own_peak(plan: Plan) -> _Peak:
    """The peak of a plan that is no point of its frontier; None if points are shown by sums."""
    if plan.peak_bytes is None or not plan.frontier_peaks:
        return None
    return PointPeak(plan.peak_bytes, "estimate" if plan.peak_is_estimated else "dry run")


def memory_of(plan: Plan, rows: Sequence[Row]) -> MemoryView:
    """The holders of a plan's memory. Without a followed step only variables are told apart."""
    held = plan.details.memory
    if held is None:
        return _by_operators(plan)
    row_of = row_names(rows)
    return MemoryView(
        peak=_largest([Share(*pair) for pair in zip(HOLDERS, held.bytes, strict=True)]),
        peak_bytes=sum(held.bytes),
        at=held.at,
        alive=tuple(
            Alive(name, row_of.get(name, ""), holder, size) for name, holder, size in held.tensors
        ),
        holders=HOLDERS,
        step=tuple(MemoryAt(n, at, _row(at, row_of), size) for n, at, size in held.step),
        events=held.events,
    )


def _by_operators(plan: Plan) -> MemoryView:
    """The memory as the search counts it; for a pipeline, that of the stage with the most.

    The memory that neither variables nor their gradients take counts as activations.
    """
    members = {operator.name for operator in plan.operators}
    total = plan.memory_bytes
    if plan.stages:
        largest = max(plan.stages, key=lambda stage: stage.memory_bytes)
        members, total = set(largest.operators), largest.memory_bytes
    of_use = Counter[str]()
    for operator in plan.operators:
        if operator.name in members:
            use = "gradients" if operator.type == GRADIENT else operator.variable
            of_use[use] += operator.memory_bytes
    known = [
        Share("weights", of_use["weights"]),
        Share("slots", of_use["slots"]),
        Share("gradients", of_use["gradients"]),
    ]
    rest = max(0, total - sum(share.bytes for share in known))
    shares = _largest([*known, Share("activations", rest)])
    return MemoryView(shares, sum(share.bytes for share in shares), "", (), HOLDERS, (), 0)


def _largest(shares: Sequence[Share]) -> tuple[Share, ...]:
    return tuple(sorted((s for s in shares if s.bytes), key=lambda share: -share.bytes))


def _row(event: str, row_of: Mapping[str, str]) -> str:
    """The row of an event, which is named after an operator: "gradient of x", "x/reshard"."""
    name = event.removeprefix("gradient of ").removeprefix("gradients of ").partition(":")[0]
    name = name.removesuffix(" again")
    return row_of.get(name) or row_of.get(name.rpartition("/")[0], "")
