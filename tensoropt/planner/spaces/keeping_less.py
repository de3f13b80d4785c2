"""The space of steps that keep fewer tensors for the backward pass (TensorOpt, section 4.2).

A tensor is kept before its resharding alone, after it alone, or not at all. Then it is resharded or
computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.findings import Findings
from tensoropt.planner.spaces.microbatches import accumulated, can_be_cut, searched_in_order
from tensoropt.problem.edges.tensor_reuse import FRUGAL

__all__ = ["NAME", "offers"]

NAME = "keeping less"


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield offers for the batch at once, then for increasing numbers of microbatches.

    There are only offers that may be faster than the fastest step that is known to fit.
    """
    if not request.keep_less or request.keeps_less:
        return
    if not findings.could_be_faster(request):
        findings.skipped[NAME] = findings.ENOUGH_MEMORY
        return
    frugal = replace(request, space=FRUGAL)
    wanted = filter(findings.could_be_faster, chain([frugal], accumulated(frugal, findings)))
    # If nothing fits, and the step cannot be cut, this search alone may find a step that does.
    share = 0.5 if findings.fits or can_be_cut(request, findings) else 1.0
    yield from searched_in_order(wanted, findings, NAME, share)
