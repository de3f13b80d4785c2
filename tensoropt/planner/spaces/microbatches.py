"""The space of steps in microbatches, which all devices compute one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.errors import GraphError
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes
from tensoropt.planner.searches.microbatch_counts import microbatch_counts
from tensoropt.planner.spaces.findings import Findings
from tensoropt.search.watch import Watch, seconds_left

__all__ = ["NAME", "accumulated", "can_be_cut", "may_fit", "offers", "searched_in_order"]

NAME = "microbatches"


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield offers with increasing numbers of microbatches, if memory is short."""
    for offer in searched_in_order(accumulated(request, findings), findings, NAME):
        findings.searched(offer.request, offer.points)
        yield offer


def can_be_cut(request: Request, findings: Findings) -> bool:
    """Whether the step can be cut into microbatches, and the script allows it."""
    return bool(_counts(request, findings))


def may_fit(request: Request, findings: Findings) -> bool:
    """Whether the step in the most microbatches can be made, and may fit by a lower bound."""
    counts = _counts(request, findings)
    if not counts:
        return False
    most = request.in_microbatches(counts[-1])
    return least_bytes(most, request.devices) <= request.usable_bytes(request.devices)


def _counts(request: Request, findings: Findings) -> Sequence[int]:
    """Return the numbers of microbatches, ascending; none if the script does not allow them.

    If the step cannot be cut, there are none, and the reason is stored.
    """
    if not _are_allowed(request):
        return ()
    try:
        return microbatch_counts(request, None, request.devices)
    except GraphError as error:
        findings.skipped[NAME] = str(error)
        return ()


def _are_allowed(request: Request) -> bool:
    return request.accumulate and request.microbatches == 1


def accumulated(request: Request, findings: Findings) -> Iterator[Request]:
    """Yield the step in 2, 4, ... microbatches, if memory is short and the script allows it.

    If the step cannot be cut into microbatches, the reason is stored.
    """
    if _are_allowed(request) and not findings.could_be_faster(request):
        findings.skipped[NAME] = findings.ENOUGH_MEMORY
        return
    for count in _counts(request, findings):
        yield request.in_microbatches(count)


def searched_in_order(
    requests: Iterator[Request], findings: Findings, name: str, share: float = 0.5
) -> Iterator[Offer]:
    """Search steps in order, until none can be clearly faster than the fastest step that fits.

    A step is skipped if no strategy of it can fit. A step fits if the memory that the search adds
    up fits; if a dry run is quick, its peak has to fit, too. Each step is expected to add at least
    as much to the least time as the one before, because it has more kernels to start.

    Args:
        requests: the steps. The fastest strategy of a step is slower than that of the step before,
            and needs less memory.
        findings: the findings so far.
        name: the name of the space.
        share: the part of the time left that a search may take. Others get the rest.
    """
    fastest, before = findings.price, 0
    for request in requests:
        usable = request.usable_bytes(request.devices)
        if not findings.has_time(name, until_one_fits=True):
            return
        if least_bytes(request, request.devices) > usable:
            continue
        with Watch(seconds=share * seconds_left()):
            offer = Strategies.of(request, findings.known)
        findings.known = offer.known
        yield offer
        if offer.fitting and not offer.is_quick_to_emit:
            time = offer.points[offer.fitting[0]][1]
        elif offer.fitting and not offer.choice.excess_bytes:
            time = offer.allowed_price
        else:
            time = None
        fastest = min((known for known in (fastest, time) if known is not None), default=None)
        least = offer.points[-1][1]
        if fastest is not None and 2 * least - (before or least) >= (1 - SAME_TIME) * fastest:
            return
        before = least
