"""The space of steps that cut a joined batch as evenly as possible, not between examples."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.findings import Findings

__all__ = ["NAME", "offers"]

NAME = "joined batches cut evenly"


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield the frontier without units of joined extents, if pieces are much larger with them.

    Reshapes that join the batch are then not split along it, but most operators of a model may lie
    between them.
    """
    even = request.evenly_joined()
    if even is not None and findings.has_time(NAME):
        yield Strategies.of(even, findings.known)
