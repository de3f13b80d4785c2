"""From a frontier to a plan: the options of TensorOpt, section 4.1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tensoropt.errors import InfeasibleError, LayoutError
from tensoropt.plan.from_frontier import plan_for
from tensoropt.plan.plan import Plan
from tensoropt.plan.profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.request import Request
from tensoropt.plan.solving import least_bytes, solved
from tensoropt.search.from_graph import GraphProblem
from tensoropt.search.frontier import Frontier
from tensoropt.search.kept import PLAIN, Space

__all__ = ["fewest_devices", "mini_parallelism", "mini_time", "profiling", "searched"]

_MOST_DEVICES = 64


def mini_time(request: Request) -> Plan:
    """The fastest strategy on all devices that fits the memory limit, of those that are looked at.

    Raises:
        InfeasibleError: none fits; says the least memory and the fewest devices that would.
    """
    problem, frontier = searched(request)
    point = frontier.fastest(request.usable_bytes(request.devices))
    return plan_for(request, problem, frontier, point, "mini_time")


def searched(request: Request) -> tuple[GraphProblem, Frontier]:
    """The frontier on all devices, of which some point fits the memory limit.

    Raises:
        InfeasibleError: see `mini_time`.
    """
    problem, frontier = solved(request, request.devices)
    if frontier.memory[0] > request.usable_bytes(request.devices):
        raise InfeasibleError(_too_little(request, int(frontier.memory[0])))
    return problem, frontier


def mini_parallelism(request: Request) -> Plan:
    """The fastest strategy on the fewest devices that fit the memory limit.

    Raises:
        InfeasibleError: not even all devices suffice.
    """
    plan = mini_time(replace(request, devices=fewest_devices(request)))
    return replace(plan, option="mini_parallelism")


def fewest_devices(request: Request) -> int:
    """The fewest devices on which some strategy fits the memory limit.

    Raises:
        InfeasibleError: see `mini_parallelism`.
    """
    fewest = _fewest_devices(request, range(1, request.devices + 1))
    if fewest is None:
        least = least_bytes(request, request.devices)
        raise InfeasibleError(_too_little(request, least))
    return fewest


def profiling(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The minimal time per step at each number of devices."""
    points = []
    for devices in parallelism:
        limit = request.usable_bytes(devices)
        _, frontier = solved(request, devices)
        if frontier.memory[0] > limit:
            points.append(ProfilePoint(devices, None, int(frontier.memory[0])))
            continue
        point = frontier.fastest(limit)
        points.append(
            ProfilePoint(devices, int(frontier.time[point]) / 1e9, int(frontier.memory[point]))
        )
    return ParallelismProfile(tuple(points))


def _fewest_devices(request: Request, counts: range) -> int | None:
    for devices in counts:
        try:
            least = least_bytes(request, devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        if least <= request.usable_bytes(devices) and _fits(request, devices):
            return devices
    return None


def _fits(request: Request, devices: int) -> bool:
    """Whether some strategy does: what edges take is in no bound, so this one searches."""
    _, frontier = solved(request, devices)
    return int(frontier.memory[0]) <= request.usable_bytes(devices)


def _too_little(request: Request, least: int) -> str:
    fewest = _fewest_devices(request, range(request.devices + 1, _MOST_DEVICES + 1))
    remedy = (
        f"Use {fewest} devices, the fewest that would fit, or raise the limit"
        if fewest is not None
        else f"No number of devices up to {_MOST_DEVICES} would fit; raise the limit"
    )
    usable = request.usable_bytes(request.devices)
    factor = request.cluster_at(request.devices).safety_factor
    frugal = replace(request, space=Space(reuse=True, recompute=True))
    if request.space == PLAIN and least_bytes(frugal, request.devices) <= usable:
        remedy = f"Try find_strategy(save_memory=True), which keeps less. {remedy}"
    return (
        f"a strategy takes at most the memory limit of a device, {_mib(usable)} after division by "
        f"the safety factor {factor}. Got a least memory of {_mib(least)} on {request.devices} "
        f"devices. {remedy} to {_limit_for(least, factor):,} bytes."
    )


def _limit_for(usable: int, factor: float) -> int:
    """The least limit that leaves so many bytes after division by the safety factor."""
    limit = math.ceil(usable * factor)
    while int(limit / factor) < usable:  # rounding
        limit += 1
    return limit


def _mib(count: int) -> str:
    return f"{count:,} bytes ({count / 2**20:.1f} MiB)"
