"""Offers in which devices run different operators: stages, and branches side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.plan import Plan
from tensoropt.plan.ways import way
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds, plan_for_pipeline
from tensoropt.planner.plans.stage_peaks import UnmadePlan, fitting_plan
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch

__all__ = ["Pipelines"]


class Pipelines(Offer):
    """The offer of pipelines, whose stages have devices of their own.

    Args:
        kind: the name of the space.
        request: the step.
        pipelines: the pipelines, each with the search that knows its stages.

    Attributes:
        pipelines: the same, by ascending memory.
    """

    def __init__(
        self, kind: str, request: Request, pipelines: Sequence[tuple[PipelineSearch, Pipeline]]
    ) -> None:
        self.kind, self.request = kind, request
        self.pipelines = sorted(pipelines, key=lambda each: (each[1].memory, each[1].time))

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        return [
            (pipeline.memory, pipeline.time + search.step_nanoseconds)
            for search, pipeline in self.pipelines
        ]

    def price_of(self, number: int) -> int:
        """See `Offer`."""
        return executed_nanoseconds(self.request, *self.pipelines[number])

    @cached_property
    def fitting(self) -> list[int]:
        """The numbers of the points that fit the memory, by ascending `price_of`."""
        return sorted(super().fitting, key=self.price_of)

    def way_of(self, number: int) -> str:
        """See `Offer`."""
        search, pipeline = self.pipelines[number]
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
        candidates = [
            UnmadePlan(self.points[number][0], partial(self.plan_of, number, option))
            for number in self.fitting
        ]
        return fitting_plan(self.request, candidates)

    def plan_of(self, number: int, option: str) -> Plan:
        """See `Offer`."""
        search, pipeline = self.pipelines[number]
        notes = _notes(search)
        return plan_for_pipeline(self.request, search, pipeline, self.points, option, notes)


def _notes(search: PipelineSearch) -> tuple[str, ...]:
    """Return the note on the gap of a search's frontier."""
    gap = (
        "approximate frontier, no proven gap: a stage is split as the whole step would be on the "
        "same number of devices"
    )
    if search.ended_by:
        by = "interrupted" if search.ended_by == "interruption" else "ended by search_seconds"
        gap += f"; that search was {by}"
    return (gap,)
