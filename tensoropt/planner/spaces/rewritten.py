"""Steps that compute the same in another way, by proven substitutions in their forward part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.joint_search import (
    Searched,
    near_candidates,
    rewritten_graphs,
)
from tensoropt.planner.searches.rewritten_graphs import JointLimits
from tensoropt.planner.spaces import stages
from tensoropt.planner.spaces.known import Known

__all__ = ["NAME", "in_stages", "offers"]

NAME = "rewritten graphs"
_LOOK_SECONDS = 0.004
"""Of one core, for each operator of a step, to estimate rewritten graphs and search the nearest:
710 operators take 1.1."""
_MOST_GAIN = 0.2
"""Share of a step's time that substitutions win at most, as a rule."""
_UNASKED = 1
"""Rewritten graphs that are searched unasked: the fastest by estimate."""
_IN_STAGES = 1
"""Rewritten graphs of which stages are searched where their number is demanded."""


def offers(whole: Strategies, known: Known) -> Iterator[Offer]:
    """Frontiers of rewritten graphs of a step that are about as fast as its own, or faster."""
    request = whole.request
    if request.rewrite is False or not known.has_time(NAME):
        return
    if request.rewrite is None and known.price is not None:
        worth = request.worth_seconds(known.price, _MOST_GAIN)
        if worth <= _LOOK_SECONDS * len(request.graph):
            known.skipped[NAME] = "looking takes longer than the job's steps can win"
            return
    base = Searched(request, whole.problem, whole.frontier)
    share = 1 - SAME_TIME if request.rewrite is None and known.fits else None
    count, limits = 0, JointLimits()
    if request.rewrite is None:
        limits = replace(limits, searched=_UNASKED)
    for found in rewritten_graphs(base, request.devices, limits=limits, share=share):
        count += 1
        yield Strategies(found.request, found.problem, found.frontier)
        if not known.has_time(NAME):
            return
    if not count:
        known.skipped[NAME] = "by estimates none is faster"


def in_stages(request: Request, known: Known) -> Iterator[Offer]:
    """The demanded stages of the rewritten graph that is the fastest by estimate, if that is more
    than nearly as fast as the script's."""
    if request.rewrite is False:
        return
    devices = request.devices
    near = near_candidates(request, devices, share=1 - SAME_TIME)
    for candidate in islice(near, _IN_STAGES):
        if known.has_time(NAME):
            yield from stages.demanded(request.of_rewritten(candidate.rewrites, candidate.graph))
