"""The space of steps whose branches run side by side, each on devices of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.request import Request
from tensoropt.planner.searches.branch_search import branches_side_by_side
from tensoropt.planner.spaces.findings import Findings
from tensoropt.planner.spaces.stages import is_wanted, keeping_all, searches_keeping_less
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.transformations.staged.order_of_passes import SCHEDULES

__all__ = ["NAME", "offers"]

NAME = "branches side by side"


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield offers with branches side by side, for the batch at once.

    There are none if the script demands microbatches or a schedule.
    """
    wanted = request.pipeline
    if wanted is None or wanted.microbatches is not None or request.microbatches > 1:
        return
    if wanted.schedules == SCHEDULES and is_wanted(request, findings, NAME):
        steps = [keeping_all(request)]
        if searches_keeping_less(request, findings):
            steps.append(replace(request, space=FRUGAL))
        for step in steps:
            if not findings.has_time(NAME):
                return
            branches = branches_side_by_side(step, findings.limit)
            if branches.pipelines:
                yield Pipelines(NAME, step, branches.pipelines)
            elif branches.is_cut_short:
                findings.ended_early(NAME)
