"""The error for a step of which no strategy fits the memory, with a remedy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensoropt.errors import InfeasibleError, LayoutError
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.dry_run_bounds import ESTIMATE
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Choice, Strategies
from tensoropt.planner.prices.dry_runs import NO_TIME
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes, search_frontier
from tensoropt.planner.spaces import stages
from tensoropt.planner.spaces.findings import Findings
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["infeasible"]

_MOST_DEVICES = 64
"""The most devices for which the remedy checks whether the step would fit."""


def infeasible(
    request: Request, offers: Sequence[Offer], findings: Findings, errors: Sequence[Exception]
) -> InfeasibleError:
    """Return the error for a step for which no offer can be planned.

    Args:
        request: the step.
        offers: all offers, at least one.
        findings: the reports of the spaces.
        errors: the errors of offers that fit by the search's memory, but could not be planned.
    """
    keeps_less = request.keep_less or request.keeps_less
    strategies = [offer for offer in offers if isinstance(offer, Strategies)]
    choices = [offer.choice for offer in strategies if offer.fitting]
    if choices:
        text = _peak_too_high(min(choices, key=lambda choice: choice.peak.bytes), keeps_less)
    elif errors:
        text = str(errors[0])
    else:
        text = _too_little_memory(request, offers, keeps_less)
    notes = [f"{note[:1].upper()}{note[1:]}." for note in findings.notes]
    reports = [*notes, *_skipped(request, findings)]
    return InfeasibleError(" ".join(dict.fromkeys([text, *reports])))


def _skipped(request: Request, findings: Findings) -> Iterator[str]:
    """Yield the reasons why spaces were not searched, if a user can change them."""
    is_asked = request.pipeline is not None and request.pipeline.is_asked
    for name, reason in findings.skipped.items():
        if is_asked or reason in (stages.DO_NOT_FIT, NO_TIME, Findings.ENDED):
            yield f"Not searched: {name}, because {reason}."


def _too_little_memory(request: Request, offers: Sequence[Offer], keeps_less: bool) -> str:
    """Return the text for a step whose least memory exceeds the limit."""
    least, way = min((offer.points[0][0], offer.way_of(0)) for offer in offers)
    usable = request.usable_bytes(request.devices)
    factor = request.cluster_at(request.devices).safety_factor
    frugal = replace(request, space=FRUGAL)
    remedy = _remedy(request, f" as the {offers[0].way_of(0)}" if len(offers) > 1 else "")
    if not keeps_less and least_bytes(frugal, request.devices) <= usable:
        remedy = f"Try find_strategy(save_memory=True), which keeps fewer tensors. {remedy}"
    return (
        f"a strategy takes at most the memory limit of a device, {bytes_of(usable)} after division "
        f"by the safety factor {factor}. Got a least memory of {bytes_of(least)} on "
        f"{devices_of(request.devices)} ({way}). {remedy} to {_limit_for(least, factor):,} bytes."
    )


def _remedy(request: Request, alone: str) -> str:
    """Return how many devices would suffice for the batch at once."""
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
    """Return the least number of devices on which a strategy of the batch at once fits.

    It is above that of the request. The result is None if there is none up to `_MOST_DEVICES`, or
    if the time of the search is over.
    """
    for devices in range(request.devices + 1, _MOST_DEVICES + 1):
        if not seconds_left():
            return None
        try:
            least = least_bytes(request, devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        usable = request.usable_bytes(devices)
        # The bound ignores the memory of edges, so the search has to confirm it.
        if least <= usable and search_frontier(request, devices)[1].memory[0] <= usable:
            return devices
    return None


def _peak_too_high(choice: Choice, keeps_less: bool) -> str:
    """Return the text for a step whose lowest peak exceeds the limit."""
    request = choice.request
    frugal = "" if keeps_less else "find_strategy(save_memory=True), "
    factor = request.cluster_at(request.devices).safety_factor
    kept, peak = int(choice.frontier.memory[choice.point]), choice.peak
    is_reliable = peak.from_dry_run or peak.note or peak.is_bound
    needed = peak.bytes if is_reliable else math.ceil(ESTIMATE * peak.bytes)
    got = f"{'a' if is_reliable else 'an estimated'} peak of {bytes_of(peak.bytes)}"
    if peak.is_bound:
        got = f"a peak of at most {bytes_of(peak.bytes)} without a dry run, because {NO_TIME}"
    enough = max(needed, _limit_for(kept, factor))
    return (
        "a step's peak memory is at most the memory limit of a device, "
        f"{bytes_of(request.limit_bytes(request.devices))}. Got {got}, the least of the "
        f"strategies that were tried on {devices_of(request.devices)}. Try {frugal}more devices, "
        f"a smaller batch, or a limit of {enough:,} bytes."
    )


def _limit_for(usable: int, factor: float) -> int:
    """Return the least limit that, divided by the safety factor, leaves ``usable`` bytes."""
    limit = math.ceil(usable * factor)
    while int(limit / factor) < usable:  # the division rounds down
        limit += 1
    return limit
