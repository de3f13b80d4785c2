"""Steps that keep less for the backward pass: tensors before or after resharding alone, or none,
whose operators are computed again (TensorOpt, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.known import Known
from tensoropt.planner.spaces.microbatches import accumulated, searched_in_order
from tensoropt.problem.edges.tensor_reuse import FRUGAL

__all__ = ["NAME", "offers"]

NAME = "keeping less"


def offers(request: Request, known: Known) -> Iterator[Offer]:
    """Where memory is short, the frontier of the batch at once; where still nothing fits, those of
    more and more microbatches."""
    if not request.keep_less or request.keeps_less:
        return
    if known.is_memory_short:
        frugal = replace(request, space=FRUGAL)
        yield from searched_in_order(iter([frugal]), known, NAME)
        if not known.fits:
            yield from searched_in_order(accumulated(frugal, known), known, NAME)
    else:
        known.skipped[NAME] = known.ENOUGH_MEMORY
