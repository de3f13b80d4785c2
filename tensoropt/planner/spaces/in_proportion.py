"""The space of steps whose pieces are in proportion to the speeds of devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.findings import Findings

__all__ = ["NAME", "offers"]

NAME = "shares in proportion"


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield the frontier with pieces in proportion, if the devices differ in speed.

    It has no stages. The devices of a stage have even pieces, and are of one kind where that pays.
    """
    shared = request.in_proportion()
    if shared is not None and findings.has_time(NAME):
        yield Strategies.of(replace(shared, pipeline=None), findings.known)
