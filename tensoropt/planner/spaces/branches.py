"""Steps whose branches run side by side, each on devices of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.request import Request
from tensoropt.planner.searches.branch_search import branches_side_by_side
from tensoropt.planner.spaces.known import Known
from tensoropt.planner.spaces.stages import is_wanted, keeping_all, may_keep_less
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.transformations.staged.schedule import SCHEDULES

__all__ = ["NAME", "offers"]

NAME = "branches side by side"


def offers(request: Request, known: Known) -> Iterator[Offer]:
    """Branches of the batch at once, where neither microbatches nor their order are demanded."""
    wanted = request.pipeline
    if wanted is None or wanted.microbatches is not None or request.microbatches > 1:
        return
    if wanted.schedules == SCHEDULES and is_wanted(request, known, NAME):
        steps = [keeping_all(request)]
        if may_keep_less(request, known):
            steps.append(replace(request, space=FRUGAL))
        for step in steps:
            found = branches_side_by_side(step, known.limit)
            if found:
                yield Pipelines(NAME, step, found)
