"""Offers in which devices run different operators: stages, and branches side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.plan.ways import way
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds, plan_for_pipeline
from tensoropt.planner.plans.stage_peaks import (
    UnmadePlan,
    failed_in_dry_run,
    fitting_plan,
    has_dry_runs,
)
from tensoropt.planner.prices.dry_runs import is_quick_to_emit
from tensoropt.planner.prices.frontier_peaks import all_peaks
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
        self._plans: dict[int, Plan] = {}

    @cached_property
    def points(self) -> Points:
        """See `Offer`."""
        request = self.request
        return [(pair[1].memory, executed_nanoseconds(request, *pair)) for pair in self.pipelines]

    def peaks(self, _: int) -> list[PointPeak | None]:
        """See `Offer`. Stages are not estimated: without a dry run no peak is known."""
        sums = np.array([memory for memory, _ in self.points], np.int64)
        dry_runs = {
            number: plan.peak_bytes
            for number, plan in self._plans.items()
            if plan.peak_bytes is not None and not plan.peak_is_estimated
        }
        return all_peaks(sums, {}, dry_runs)

    def price_of(self, number: int) -> int:
        """See `Offer`."""
        return self.points[number][1]

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

    @cached_property
    def known_price(self) -> int | None:
        """See `Offer`. Only the fastest pipeline has dry runs, once, also if its plan fails."""
        if not self.fitting:
            return None
        _, pipeline = self.pipelines[self.fitting[0]]
        count, stages = pipeline.microbatches, len(pipeline.stages)
        is_quick = is_quick_to_emit(self.request, count, pipeline.schedule, stages)
        if has_dry_runs(self.request, pipeline.memory) and not is_quick:
            return None
        try:
            plan = self.plan_of(self.fitting[0], "mini_time")
        except Exception:
            return None  # No price is known. The error comes again if this offer is to be planned.
        fits = (plan.peak_bytes or 0) <= self.request.limit_bytes(self.request.devices)
        is_emitted = not failed_in_dry_run(self.request, plan)
        return plan.executed_nanoseconds if fits and is_emitted else None

    def plan(self, option: str) -> Plan:
        """See `Offer`."""
        candidates = [
            UnmadePlan(self.points[number][0], partial(self.plan_of, number, option))
            for number in self.fitting
        ]
        return fitting_plan(self.request, candidates)

    def plan_of(self, number: int, option: str) -> Plan:
        """See `Offer`. A plan and its dry runs are made once."""
        if number not in self._plans:
            search, pipeline = self.pipelines[number]
            self._plans[number] = plan_for_pipeline(
                self.request, search, pipeline, option, _notes(search)
            )
        return replace(self._plans[number], option=option)


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
