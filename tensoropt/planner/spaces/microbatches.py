"""Steps that compute their gradients in several microbatches, one after another, on all devices."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.errors import GraphError
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import least_bytes
from tensoropt.planner.searches.microbatch_counts import microbatch_counts
from tensoropt.planner.spaces.known import Known

__all__ = ["NAME", "accumulated", "offers", "searched_in_order"]

NAME = "microbatches"


def offers(request: Request, known: Known) -> Iterator[Offer]:
    """Frontiers of more and more microbatches, where memory is short: they take no less time."""
    for offer in searched_in_order(accumulated(request, known), known, NAME):
        known.searched(offer.request, offer.points)
        yield offer


def accumulated(request: Request, known: Known) -> Iterator[Request]:
    """The step in 2, 4, ... microbatches, where memory is short and a script leaves their number
    open; what excludes microbatches is the reason why they are skipped."""
    if not request.accumulate or request.microbatches > 1:
        return
    if not known.could_be_faster(request):
        known.skipped[NAME] = known.ENOUGH_MEMORY
        return
    try:
        counts = microbatch_counts(request, None, request.devices)
    except GraphError as error:
        known.skipped[NAME] = str(error)
        return
    for count in counts:
        yield request.in_microbatches(count)


def searched_in_order(requests: Iterator[Request], known: Known, name: str) -> Iterator[Offer]:
    """Search steps in order, each with a fastest strategy that is slower and takes less memory.

    A step of which no strategy can fit is passed over. The last step that is searched has no
    strategy that is faster than the fastest known that fits: steps after it are slower still. The
    peak of memory has to fit, too, where that is quick to tell.
    """
    fastest = known.time
    for request in requests:
        usable = request.usable_bytes(request.devices)
        if not known.has_time(name):
            return
        if least_bytes(request, request.devices) > usable:
            continue
        offer = Strategies.of(request)
        yield offer
        if fastest is not None and offer.points[-1][1] >= fastest:
            return
        if offer.fitting and not offer.is_quick_to_emit:
            fastest = offer.points[offer.fitting[0]][1]
        elif offer.fitting and not offer.choice.excess_bytes:
            fastest = offer.points[offer.choice.point][1]
