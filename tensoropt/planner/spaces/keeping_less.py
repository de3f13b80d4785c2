"""Steps that keep less for the backward pass: tensors before or after resharding alone, or none,
whose operators are computed again (TensorOpt, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.known import Known
from tensoropt.planner.spaces.microbatches import accumulated, searched_in_order
from tensoropt.problem.edges.tensor_reuse import FRUGAL

__all__ = ["NAME", "offers"]

NAME = "keeping less"


def offers(request: Request, known: Known) -> Iterator[Offer]:
    """Frontiers of the batch at once and of more and more microbatches, as far as they can be
    faster than what is known to fit."""
    if not request.keep_less or request.keeps_less:
        return
    if not known.could_be_faster(request):
        known.skipped[NAME] = known.ENOUGH_MEMORY
        return
    frugal = replace(request, space=FRUGAL)
    wanted = filter(known.could_be_faster, chain([frugal], accumulated(frugal, known)))
    yield from searched_in_order(wanted, known, NAME)
