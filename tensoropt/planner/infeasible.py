"""The error that says that no strategy fits the memory, and what would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensoropt.errors import InfeasibleError, LayoutError
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.peak_margin import ESTIMATE
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Choice, Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes, search_frontier
from tensoropt.planner.spaces import stages
from tensoropt.planner.spaces.known import Known
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["infeasible"]

_MOST_DEVICES = 64


def infeasible(
    request: Request, offers: Sequence[Offer], known: Known, errors: Sequence[Exception]
) -> InfeasibleError:
    """The error for a step that no offer serves.

    Args:
        request: the step.
        offers: all that was found, at least one.
        known: what spaces tell of themselves.
        errors: why offers that fit by the memory that the search adds up are not planned.
    """
    keeps_less = request.keep_less or request.keeps_less
    strategies = [each for each in offers if isinstance(each, Strategies)]
    tried = [each.choice for each in strategies if each.fitting]
    if tried:
        text = _too_high(min(tried, key=lambda choice: choice.peak.bytes), keeps_less)
    elif errors:
        text = str(errors[0])
    else:
        text = _too_little(request, offers, keeps_less)
    others = [*known.notes, *_skipped(request, known)]
    return InfeasibleError(" ".join(dict.fromkeys([text, *others])))


def _skipped(request: Request, known: Known) -> Iterator[str]:
    """Why spaces that could serve a step of which nothing else fits were not looked at."""
    is_asked = request.pipeline is not None and request.pipeline.is_asked
    for name, reason in known.skipped.items():
        if is_asked or reason in (stages.DO_NOT_FIT, Known.NO_TIME):
            yield f"Not looked at: {name}, as {reason}."


def _too_little(request: Request, offers: Sequence[Offer], keeps_less: bool) -> str:
    least, way = min((offer.points[0][0], offer.way_of(0)) for offer in offers)
    usable = request.usable_bytes(request.devices)
    factor = request.cluster_at(request.devices).safety_factor
    frugal = replace(request, space=FRUGAL)
    remedy = _remedy(request, f" as the {offers[0].way_of(0)}" if len(offers) > 1 else "")
    if not keeps_less and least_bytes(frugal, request.devices) <= usable:
        remedy = f"Try find_strategy(save_memory=True), which keeps less. {remedy}"
    return (
        f"a strategy takes at most the memory limit of a device, {bytes_of(usable)} after division "
        f"by the safety factor {factor}. Got a least memory of {bytes_of(least)} on "
        f"{devices_of(request.devices)} ({way}). {remedy} to {_limit_for(least, factor):,} bytes."
    )


def _remedy(request: Request, alone: str) -> str:
    """How many devices would do without stages, microbatches, and what keeps less."""
    if request.pipeline is not None and request.pipeline.stages is not None:
        more = "" if request.pipeline.microbatches is None else "more microbatches, "
        return f"Use {more}more stages or devices, or raise the limit"
    with Watch(seconds=request.search_seconds):
        devices = _enough_devices(request)
        is_over = not seconds_left()
    if devices is not None:
        return f"Use {devices} devices, the fewest that would fit{alone}, or raise the limit"
    if is_over:
        return "Use more devices, or raise the limit"
    return f"No number of devices up to {_MOST_DEVICES} would fit{alone}; raise the limit"


def _enough_devices(request: Request) -> int | None:
    """The least number of devices, beyond the request's, on which a strategy of the batch at once
    fits; None where none was found."""
    for devices in range(request.devices + 1, _MOST_DEVICES + 1):
        if not seconds_left():
            return None
        try:
            least = least_bytes(request, devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        usable = request.usable_bytes(devices)
        # The bound leaves out the memory of edges, so each number that it allows is searched.
        if least <= usable and search_frontier(request, devices)[1].memory[0] <= usable:
            return devices
    return None


def _too_high(choice: Choice, keeps_less: bool) -> str:
    request = choice.request
    frugal = "" if keeps_less else "find_strategy(save_memory=True), "
    factor = request.cluster_at(request.devices).safety_factor
    kept, peak = int(choice.frontier.memory[choice.point]), choice.peak
    is_near = peak.from_dry_run or peak.note
    needed = peak.bytes if is_near else math.ceil(ESTIMATE * peak.bytes)
    told = f"{'a' if is_near else 'an estimated'} peak of {bytes_of(peak.bytes)}"
    enough = max(needed, _limit_for(kept, factor))
    return (
        "a step's peak memory is at most the memory limit of a device, "
        f"{bytes_of(request.limit_bytes(request.devices))}. Got {told}, the least of the "
        f"strategies that were tried on {devices_of(request.devices)}. Try {frugal}more devices, "
        f"a smaller batch, or a limit of {enough:,} bytes."
    )


def _limit_for(usable: int, factor: float) -> int:
    """The least limit that leaves so many bytes after division by the safety factor."""
    limit = math.ceil(usable * factor)
    while int(limit / factor) < usable:  # rounding
        limit += 1
    return limit
