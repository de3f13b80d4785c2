"""Strategies in which devices have operators of their own: stages, and branches side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.plan import Plan
from tensoropt.plan.ways import way
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds, plan_for_pipeline
from tensoropt.planner.plans.stage_peaks import Candidate, fitting_plan
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch

__all__ = ["Pipelines"]


class Pipelines(Offer):
    """Pipelines, whose stages have devices of their own.

    Args:
        kind: of what space.
        request: the step.
        found: pipelines, each with the search that knows its stages.

    Attributes:
        found: these, by ascending memory.
    """

    def __init__(
        self, kind: str, request: Request, found: Sequence[tuple[PipelineSearch, Pipeline]]
    ) -> None:
        self.kind, self.request = kind, request
        self.found = sorted(found, key=lambda each: (each[1].memory, each[1].time))

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        return [(each.memory, each.time + search.step_nanoseconds) for search, each in self.found]

    def price_of(self, number: int) -> int:
        """See `Offer`."""
        return executed_nanoseconds(self.request, *self.found[number])

    @cached_property
    def fitting(self) -> list[int]:
        """Numbers of the points that fit the memory, the fastest first as they are executed."""
        return sorted(super().fitting, key=self.price_of)

    def way_of(self, number: int) -> str:
        """See `Offer`."""
        search, pipeline = self.found[number]
        stages, count = len(pipeline.stages), pipeline.microbatches
        less = self.request.keeps_less and search.keeps_less(pipeline)
        names = self.request.substitutions
        return way(names, count, stages, pipeline.schedule, keeps_less=less)

    @property
    def is_staged(self) -> bool:
        """See `Offer`."""
        return True

    def plan(self, option: str) -> Plan:
        """See `Offer`."""
        plans = [(n, partial(self.plan_of, n, option)) for n in self.fitting]
        every = [Candidate(self.points[number][0], make) for number, make in plans]
        return fitting_plan(self.request, every)

    def plan_of(self, number: int, option: str) -> Plan:
        """See `Offer`."""
        search, pipeline = self.found[number]
        notes = _notes(search)
        return plan_for_pipeline(self.request, search, pipeline, self.points, option, notes)


def _notes(search: PipelineSearch) -> tuple[str, ...]:
    """What is not proven of a search's frontier."""
    gap = (
        "approximate frontier, no proven gap: a stage is split as the whole step is on as many "
        "devices"
    )
    if search.ended_by:
        by = "interrupted" if search.ended_by == "interruption" else "ended by search_seconds"
        gap += f"; that search was {by}"
    return (gap,)
