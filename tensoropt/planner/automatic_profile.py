"""``pipeline="auto"`` for ``profiling``: the least time of a step at each number of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.planner.automatic_pipeline import Others, searched
from tensoropt.planner.choose import executed_step
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["profile_automatically"]


def profile_automatically(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The least time of a step at each number of devices, with stages or without."""
    points = []
    for devices in parallelism:
        own, usable = replace(request, devices=devices), request.usable_bytes(devices)
        problem, frontier, others = searched(own)
        every = [*_steps(own, problem, frontier), *_steps_of(own, others)]
        fitting = [each for each in every if each.memory <= usable]
        if fitting:
            best = min(fitting, key=lambda each: (each.time, each.memory))
            points.append(ProfilePoint(devices, best.executed() / 1e9, best.memory))
        else:
            points.append(ProfilePoint(devices, None, min(each.memory for each in every)))
    return ParallelismProfile(tuple(points))


class _Step(NamedTuple):
    """A point: memory, the search's sum of times, and what predicts its step."""

    memory: int
    time: int
    executed: Callable[[], int]


def _steps(request: Request, problem: GraphProblem, frontier: Frontier) -> list[_Step]:
    return [
        _Step(memory, time, partial(executed_step, request, problem, frontier[place]))
        for place, (memory, time) in enumerate(
            zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True)
        )
    ]


def _steps_of(request: Request, others: Others) -> list[_Step]:
    """Steps in microbatches, and those of pipelines."""
    found = [step for each in others.accumulated for step in _steps(*each)]
    for search, each in others.pipelines:
        predict = partial(executed_nanoseconds, request, search, each)
        found.append(_Step(each.memory, each.time + search.step_nanoseconds, predict))
    return found
