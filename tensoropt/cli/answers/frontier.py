"""The answer of ``tensoropt frontier``."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.plan import Plan
from tensoropt.plan.amounts import bytes_of
from tensoropt.planner.offers.points import turning_number

__all__ = ["FrontierAnswer", "FrontierPoint", "frontier_answer"]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A point of a frontier.

    Attributes:
        number: its number, for ``--point``.
        memory_bytes: predicted memory per device, the search's sum.
        peak_bytes: predicted peak per device; null if it is unknown.
        peak_is_estimated: whether a known peak is estimated; else it comes from a dry run.
        time_nanoseconds: the search's sum of a step's times.
        fits: whether it fits the memory limit, as far as its memory and peak are known.
        way: the way to run the step, in a few words; empty if it is unknown.
        is_plan: whether it is the plan.
    """

    number: int
    memory_bytes: int
    peak_bytes: int | None
    peak_is_estimated: bool
    time_nanoseconds: int
    fits: bool
    way: str
    is_plan: bool


@dataclass(frozen=True, slots=True)
class FrontierAnswer:
    """The frontier from which a plan is chosen.

    Attributes:
        cluster: the name of the cluster.
        devices: number of devices of the plan.
        memory_limit_bytes: the memory limit, safety factor included; null for none.
        exact: whether no other strategy is better than a point.
        within: the proven gap of a frontier that is not exact; null if nothing is proven.
        turning_point: the number of the turning point; null if the frontier has none.
        points: the points, the least memory first.
    """

    cluster: str
    devices: int
    memory_limit_bytes: int | None
    exact: bool
    within: float | None
    turning_point: int | None
    points: tuple[FrontierPoint, ...]

    @property
    def turning_sentence(self) -> str:
        """The turning point and its costs, in words."""
        if self.turning_point is None:
            return f"{len(self.points)} points, none of which is a turning point"
        point, last = self.points[self.turning_point], self.points[-1]
        faster = 1 - last.time_nanoseconds / max(point.time_nanoseconds, 1)
        return (
            f"turning point: {point.number}, with {bytes_of(point.memory_bytes)} a device; the "
            f"fastest, {last.number}, takes {faster:.0%} less time and "
            f"{bytes_of(last.memory_bytes)}"
        )


def frontier_answer(plan: Plan) -> FrontierAnswer:
    """The frontier of a plan."""
    peaks, ways = plan.known_peaks, plan.frontier_ways
    chosen = plan.memory_bytes, plan.time_nanoseconds
    points = []
    for number, (memory, time) in enumerate(plan.frontier):
        peak, is_estimated = peaks.get(memory, (None, False))
        fits, way = plan.fits(memory, peak), ways[number] if ways else ""
        is_plan = (memory, time) == chosen
        points.append(FrontierPoint(number, memory, peak, is_estimated, time, fits, way, is_plan))
    turning = turning_number(plan.frontier)
    return FrontierAnswer(
        plan.cluster.name,
        plan.devices,
        plan.memory_limit_bytes,
        plan.exact,
        plan.within,
        turning,
        tuple(points),
    )
