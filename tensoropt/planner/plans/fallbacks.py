"""Plans in place of one that cannot be executed: data parallelism, and every operator whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensoropt.plan.plan import Plan
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.frontier_search import problem_of
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel, whole
from tensoropt.search.pareto.frontier import FrontierPoint

__all__ = ["is_demanded", "left_out", "plans_instead", "simple_strategies"]


def left_out(reason: str) -> str:
    """The note of a plan that is taken in place of a faster one."""
    return f"a faster plan cannot be executed and is left out: {reason}"


def is_demanded(request: Request) -> bool:
    """Whether a script demands strategies of a kind, so that no others may be planned instead."""
    stages = request.pipeline is not None and request.pipeline.stages is not None
    return stages or request.rewrite or request.algorithm != "ft"


def simple_strategies(request: Request, problem: GraphProblem) -> Iterator[FrontierPoint]:
    """Data parallelism, then every operator whole, as far as they fit the memory."""
    usable = request.usable_bytes(problem.mesh.size)
    for baseline in (data_parallel, whole):
        (point,) = baseline.solve(problem)
        if point.memory <= usable:
            yield point


def plans_instead(request: Request, plan: Plan, reason: str) -> Iterator[Plan]:
    """Simple plans in place of one whose execution graph cannot be built.

    Args:
        request: what the plan was found for.
        plan: it cannot be executed.
        reason: why.
    """
    request = replace(request, devices=plan.devices, pipeline=None)
    problem, notes = problem_of(request, request.devices), [left_out(reason)]
    fewer = fewer_devices(request, problem, notes)
    for baseline in (data_parallel, whole):
        frontier = baseline.solve(problem)
        if frontier.memory[0] > request.usable_bytes(request.devices):
            continue
        found = plan_for(
            request,
            problem,
            frontier,
            frontier[0],
            plan.option,
            notes=notes,
            fewer_devices=fewer,
        )
        if not found.runs_as(plan):
            yield found
