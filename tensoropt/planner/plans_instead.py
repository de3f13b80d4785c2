"""Replacements of a plan whose execution graph cannot be built at the start of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.plans.fallbacks import left_out, simple_frontiers
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of

__all__ = ["plans_instead"]


def plans_instead(request: Request, plan: Plan, reason: str) -> Iterator[Plan]:
    """Yield plans that may replace one whose execution graph cannot be built.

    If the plan had no dry run, the first replacement is the fastest plan whose dry run succeeds.
    The last two are data parallelism, and every operator whole. None has stages.

    Args:
        request: the request for which the plan was found.
        plan: the plan that cannot be executed.
        reason: the error.
    """
    request = replace(request, devices=plan.devices, pipeline=None)
    problem, notes = problem_of(request, request.devices), [left_out(reason)]
    if plan.peak_is_estimated:
        rehearsed = replace(request, saves_dry_runs=False)

        def searched() -> Plan:
            return choose(rehearsed, "mini_time")

        faster = attempt("plans that are faster", searched, None, notes)
        if faster is not None and not faster.runs_as(plan):
            yield replace(faster, option=plan.option, notes=(*faster.notes, *notes))
    fewer = fewer_devices(request, problem, notes)
    for frontier in simple_frontiers(request, problem):
        simple = plan_for(
            request,
            problem,
            frontier,
            frontier.strategies[0],
            plan.option,
            notes=notes,
            fewer_devices=fewer,
        )
        if not simple.runs_as(plan):
            yield simple
