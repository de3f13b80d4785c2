"""Joint search: the rewritten graphs of a step that are worth a search of their frontiers."""

from __future__ import annotations

from functools import cache

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.planner.searches.rewritten_graphs import THRESHOLD, RewrittenGraph, candidates
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable

__all__ = ["is_promising", "near_candidates"]

_ORDERED_AGAIN = 6
"""The most candidates that are estimated on the finest mesh, too; each takes 0.1 s for a step of
1,000 operators on 32 devices."""


def near_candidates(
    request: Request, devices: int, share: float = THRESHOLD
) -> list[RewrittenGraph]:
    """Return the rewritten graphs of a step that may be worth a search, the fastest first.

    Args:
        request: the request for the script's graph.
        devices: the number of devices.
        share: the most estimated time of a graph, as a multiple of the script's graph.
    """
    # Estimates on the coarsest mesh are the quickest. For few devices it is the only mesh.
    coarsest, *finer = (refinement.mesh for refinement in request.meshes(devices))
    estimate = StepEstimate(request.cost_model(devices, coarsest))
    pinned = tuple(request.pins.of_operator)
    found = candidates(request.graph, request.roots, _substitutions(), estimate, share, pinned)
    if not finer:
        return found
    return _ordered_again(found, StepEstimate(request.cost_model(devices, finer[-1])))


def _ordered_again(found: list[RewrittenGraph], estimate: StepEstimate) -> list[RewrittenGraph]:
    """Return candidates with the first of them, which are nearly equal, in the order of another
    estimate."""
    near = [graph for graph in found if graph.nanoseconds <= (1 + SAME_TIME) * found[0].nanoseconds]
    count = min(len(near), _ORDERED_AGAIN)
    first = sorted(near[:count], key=lambda graph: (estimate(graph.graph), graph.moves))
    return first + found[count:]


@cache
def _substitutions() -> tuple[Substitution, ...]:
    """Return the package's substitutions that apply to graphs."""
    return applicable(substitutions_by_name().values())


def is_promising(
    before: GraphProblem, frontier: Frontier, fastest: int, request: Request, devices: int
) -> bool:
    """Whether a rewritten graph is about as fast as the fastest if only its changes are searched.

    Only new operators and their neighbours are searched. All others keep their configuration from
    the fastest strategy of the script's graph. With several meshes there is no such search, and the
    result is True.

    Args:
        before: the problem of the script's graph.
        frontier: the frontier that its search found.
        fastest: the nanoseconds of the fastest step so far, as the search adds them up.
        request: the request for the rewritten graph.
        devices: the number of devices.
    """
    if len(request.meshes(devices)) > 1:
        return True
    problem = problem_of(request, devices)
    local = least_time(problem.problem, _searched_configurations(before, frontier, problem))
    return int(local.time[0]) <= THRESHOLD * fastest


def _searched_configurations(
    before: GraphProblem, frontier: Frontier, problem: GraphProblem
) -> list[Int64Array]:
    """Return the searched configurations of each node of a rewritten graph's problem."""
    kept = {
        (group.members, len(group.options)): int(number)
        for group, number in zip(before.choices, frontier.strategies[-1], strict=True)
    }
    chosen = [kept.get((group.members, len(group.options))) for group in problem.choices]
    new = {node for node, number in enumerate(chosen) if number is None}
    near = set(new)
    for edge in problem.problem.edges:
        if edge.source in new or edge.target in new:
            near |= {edge.source, edge.target}
    return [
        np.arange(len(group.options)) if node in near else np.array([chosen[node]])
        for node, group in enumerate(problem.choices)
    ]
