"""``tensoropt frontier``: the frontier of a script's step, or of a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tensoropt.cli.command import (
    Answer,
    ScriptCommand,
    cluster_option,
    given,
    option,
    planning_options,
)
from tensoropt.cli.plan import plan_reached
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.plan.amounts import bytes_of
from tensoropt.plan.point_peak import PeakSource, shown_bytes
from tensoropt.planner.offers.points import turning_number
from tensoropt.planner.options.planning_options import flag_of
from tensoropt.planner.options.relations import not_for
from tensoropt.planner.options.values import count
from tensoropt.report.plan_table import frontier_table
from tensoropt.view import view_of

__all__ = ["FrontierAnswer", "FrontierPoint", "frontier"]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A point of a frontier.

    Attributes:
        number: its number, for ``--point``.
        memory_bytes: the search's sum of kept tensors per device.
        peak_bytes: predicted peak per device, by which points are in order; null if it is unknown.
            Then the sum is in its place.
        peak_source: "dry run", "estimate", or "interpolation" between points; null if it is
            unknown.
        step_nanoseconds: the predicted step as it is executed; some are interpolated.
        fits: whether it fits the memory limit, as far as its memory and peak are known.
        way: the way to run the step, in a few words; empty if it is unknown.
        is_plan: whether it is the plan.
    """

    number: int
    memory_bytes: int
    peak_bytes: int | None
    peak_source: PeakSource | None
    step_nanoseconds: int
    fits: bool
    way: str
    is_plan: bool

    @property
    def shown_bytes(self) -> int:
        """The peak, or the sum where it is unknown."""
        return shown_bytes(self.memory_bytes, self.peak_bytes)


@dataclass(frozen=True, slots=True)
class FrontierAnswer:
    """The frontier from which a plan is chosen.

    Attributes:
        cluster: the name of the cluster.
        devices: number of devices of the plan.
        memory_limit_bytes: the memory limit, safety factor included; null for none.
        exact: whether the searches found every point of least sums.
        within: the proven gap of the searches if they are not exact; null if nothing is proven.
        turning_point: the number of the turning point; null if the frontier has none.
        points: the points, the least peak first.
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
        faster = 1 - last.step_nanoseconds / max(point.step_nanoseconds, 1)
        return (
            f"turning point: {point.number}, with {bytes_of(point.shown_bytes)} a device; the "
            f"fastest, {last.number}, takes {faster:.0%} less time and "
            f"{bytes_of(last.shown_bytes)}"
        )


def _answer(plan: Plan) -> FrontierAnswer:
    """The frontier of a plan."""
    points = [
        FrontierPoint(
            point.number,
            point.memory_bytes,
            point.peak_bytes,
            point.peak_source,
            point.nanoseconds,
            point.fits,
            point.name,
            point.kind == "plan",
        )
        for point in view_of(plan).frontier
        if point.number is not None
    ]
    turning = turning_number(plan.points)
    return FrontierAnswer(
        plan.cluster.name,
        plan.devices,
        plan.memory_limit_bytes,
        plan.exact,
        plan.within,
        turning,
        tuple(points),
    )


@click.command(cls=ScriptCommand, answer=FrontierAnswer)
@click.argument("file", metavar="SCRIPT|PLAN.json", type=click.Path(path_type=Path))
@option(*("--devices", "N", int, count), help="Number of devices, for a script.")
@cluster_option
@planning_options(without=["point", *not_for("mini_cost")])
def frontier(
    file: Path,
    devices: int | None,
    cluster: str | None,
    arguments: Sequence[str],
    **options: Any,
) -> Answer:
    """Show the points between time and memory from which a plan is chosen.

    For a script, plan it as `tensoropt plan` does; for a plan file, read the frontier there. Each
    point has the number that `tensoropt plan --point` and find_strategy(point=...) take. The
    turning point is where more memory begins to gain little time.
    """
    if file.suffix == ".json":
        _check_alone(file, {"devices": devices, "cluster": cluster, **options}, arguments)
        found = Plan.load(file)
    elif devices is None:
        raise OptionError(
            "a frontier is for a number of devices. Got a script without --devices; add "
            "--devices 4."
        )
    else:
        found = plan_reached(file, devices, cluster, arguments, options, "frontier").plan
    answer = _answer(found)
    title = f"frontier of cluster {found.cluster} (* is the plan)\n"
    return Answer(answer, (title, frontier_table(found), answer.turning_sentence))


def _check_alone(file: Path, options: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Check that a plan file comes without options of planning.

    Raises:
        OptionError: it has options or arguments of a script.
    """
    got = [flag_of(name) for name in given(options)]
    if arguments:
        got.append(f"the arguments {' '.join(arguments)}")
    if got:
        raise OptionError(
            "the frontier of a plan file is that of its own devices, cluster and options. Got "
            f"{', '.join(got)} with {str(file)!r}; leave them out, or give the script to plan it "
            "with them."
        )
