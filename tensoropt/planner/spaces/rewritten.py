"""The space of rewritten steps, made by proven substitutions in the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.joint_search import is_promising, near_candidates
from tensoropt.planner.searches.rewritten_graphs import THRESHOLD
from tensoropt.planner.searches.shared import search_once
from tensoropt.planner.spaces import stages
from tensoropt.planner.spaces.findings import Findings

__all__ = ["NAME", "in_stages", "offers"]

NAME = "rewritten graphs"
_LOOK_SECONDS = 0.004
"""The seconds of one core, for each operator of a step, to estimate rewritten graphs and to search
the best. Measured: 1.1 s for 710 operators, with a margin."""
_MOST_GAIN = 0.2
"""The largest share of a step's time that substitutions usually win."""
_ASKED = 4
"""The most rewritten graphs that are searched if the script asks for them."""
_UNASKED = 1
"""The most rewritten graphs that are searched if the script does not ask for them."""
_OF_GRADIENTS = "the script differentiates gradients, whose tensors substitutions may remove"
_IN_STAGES = 1
"""The most rewritten graphs whose stages are searched if the script demands stages."""


def offers(whole: Strategies, findings: Findings) -> Iterator[Offer]:
    """Yield the frontiers of rewritten graphs that are about as fast as the step's own, or faster.

    Args:
        whole: the offer for the batch at once.
        findings: the findings so far.
    """
    request = whole.request
    if request.rewrite is False or not findings.has_time(NAME):
        return
    if differentiates_gradients(request.graph):
        findings.skipped[NAME] = _OF_GRADIENTS
        return
    if request.rewrite is None and findings.price is not None:
        worth = request.worth_seconds(findings.price, _MOST_GAIN)
        if worth <= _LOOK_SECONDS * len(request.graph):
            findings.skipped[NAME] = "looking takes longer than the job's steps can win"
            return
    devices, fastest, count = request.devices, int(whole.searched.time[-1]), 0
    most = _UNASKED if request.rewrite is None else _ASKED
    share = 1 - SAME_TIME if request.rewrite is None and findings.fits else THRESHOLD
    near = partial(near_candidates, request, devices, share)
    for candidate in search_once(f"rewritten graphs {share}", request, devices, near):
        rewritten = request.of_rewritten(candidate.rewrites, candidate.graph)
        if not is_promising(whole.problem, whole.searched, fastest, rewritten, devices):
            continue
        offer = Strategies.of(rewritten)
        fastest = min(fastest, int(offer.searched.time[-1]))
        count += 1
        yield offer
        if not findings.has_time(NAME) or count == most:
            return
    if not count and findings.has_time(NAME):
        findings.skipped[NAME] = "by estimates none is faster"


def in_stages(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield offers with the demanded stages for rewritten graphs that are clearly faster.

    The graphs are chosen by the estimates of their steps.
    """
    if request.rewrite is False:
        return
    if differentiates_gradients(request.graph):
        findings.skipped[NAME] = _OF_GRADIENTS
        return
    near = near_candidates(request, request.devices, 1 - SAME_TIME)
    for candidate in islice(near, _IN_STAGES):
        if findings.has_time(NAME):
            yield from stages.demanded(request.of_rewritten(candidate.rewrites, candidate.graph))
