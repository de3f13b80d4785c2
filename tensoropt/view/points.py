"""The points of memory and time around a plan: its frontier, and other strategies."""

from __future__ import annotations

from tensoropt.plan.plan import Plan
from tensoropt.view.data.points import PointKind, PointView

__all__ = ["points_of"]

_DATA_PARALLELISM = "data parallelism"


def points_of(plan: Plan) -> tuple[PointView, ...]:
    """The points, the least memory first. The plan is one, even if it is not on the frontier."""
    peaks = plan.known_peaks
    ways = plan.frontier_ways or ("",) * len(plan.frontier)
    chosen = plan.memory_bytes, plan.time_nanoseconds

    def point_of(
        kind: PointKind, way: str, number: int | None, memory: int, time: int
    ) -> PointView:
        peak, is_estimated = peaks.get(memory, (None, False))
        fits = plan.fits(memory, peak)
        return PointView(kind, way, number, memory, time, peak, is_estimated, fits)

    points = [
        point_of("frontier", way, number, *point)
        for number, (point, way) in enumerate(zip(plan.frontier, ways, strict=True))
        if point != chosen
    ]
    number = plan.frontier.index(chosen) if chosen in plan.frontier else None
    points.append(point_of("plan", plan.way, number, *chosen))
    for name, memory, time in plan.details.others if plan.details else ():
        kind: PointKind = "data parallelism" if name == _DATA_PARALLELISM else "other algorithm"
        fits = plan.fits(memory, None)
        points.append(PointView(kind, name, None, memory, time, None, False, fits))
    return tuple(sorted(points, key=lambda point: (point.memory_bytes, point.nanoseconds)))
