"""Joint search: the frontiers of the script's graph and of rewritten graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of, search_frontier
from tensoropt.planner.searches.rewritten_graphs import JointLimits, RewrittenGraph, candidates
from tensoropt.planner.searches.shared import search_once
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable

__all__ = [
    "Searched",
    "near_candidates",
    "rewritten_graphs",
    "search_jointly",
    "searched_alone",
]


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """A graph whose frontier was searched.

    Attributes:
        request: the request for the graph.
        problem: the searched problem.
        frontier: its frontier.
    """

    request: Request
    problem: GraphProblem
    frontier: Frontier


def search_jointly(
    request: Request,
    devices: int,
    substitutions: Sequence[Substitution] | None = None,
    limits: JointLimits | None = None,
) -> tuple[Searched, ...]:
    """Return the script's graph, then rewritten graphs, each with its frontier.

    For a rewritten graph, only the operators that are new, and their neighbours, are searched at
    first. All others keep their configuration from the fastest strategy of the script's graph. The
    frontier is searched if that takes at most `JointLimits.threshold` times the fastest step.

    Args:
        request: the request for the script's graph.
        devices: the number of devices.
        substitutions: the substitutions; by default those of the package that apply to graphs.
        limits: the budget.
    """
    base = searched_alone(request, devices)
    return base, *rewritten_graphs(base, devices, substitutions, limits)


def rewritten_graphs(
    base: Searched,
    devices: int,
    substitutions: Sequence[Substitution] | None = None,
    limits: JointLimits | None = None,
    share: float | None = None,
) -> Iterator[Searched]:
    """Yield the rewritten graphs of `search_jointly`.

    Args:
        base: the script's graph with its frontier.
        devices: the number of devices.
        substitutions: the substitutions; by default those of the package that apply to graphs.
        limits: the budget.
        share: the most estimated time of a graph, as a multiple of the script's graph; by default
            `JointLimits.threshold`.
    """
    request, limits = base.request, limits or JointLimits()
    fastest = int(base.frontier.time[-1])
    searches_left = limits.searched
    near = partial(near_candidates, request, devices, substitutions, limits, share)
    for candidate in search_once(f"rewritten graphs {share}", request, devices, near):
        rewritten = request.of_rewritten(candidate.rewrites, candidate.graph)
        if _is_promising(base, fastest, rewritten, devices, limits):
            searched = searched_alone(rewritten, devices)
            yield searched
            fastest = min(fastest, int(searched.frontier.time[-1]))
            searches_left -= 1
        if not searches_left:
            return


def near_candidates(
    request: Request,
    devices: int,
    substitutions: Sequence[Substitution] | None = None,
    limits: JointLimits | None = None,
    share: float | None = None,
) -> list[RewrittenGraph]:
    """Return the rewritten graphs of a step that may be worth a search, the fastest first.

    Their times are estimates; the arguments are those of `rewritten_graphs`.
    """
    applied = _default_substitutions() if substitutions is None else applicable(substitutions)
    # Estimates on the coarsest mesh are the quickest. For few devices it is the only mesh.
    mesh = request.meshes(devices)[0].mesh
    estimate = StepEstimate(request.cost_model(devices, mesh))
    limits = limits or JointLimits()
    pinned = tuple(request.pins.of_operator)
    return candidates(request.graph, request.roots, applied, estimate, limits, share, pinned)


def searched_alone(request: Request, devices: int) -> Searched:
    """Return the request's graph with its frontier."""
    return Searched(request, *search_frontier(request, devices))


@cache
def _default_substitutions() -> tuple[Substitution, ...]:
    return applicable(substitutions_by_name().values())


def _is_promising(
    base: Searched, fastest: int, request: Request, devices: int, limits: JointLimits
) -> bool:
    """Whether a rewritten graph is about as fast as the fastest if only its changes are searched.

    With several meshes there is no such search, and the result is True.
    """
    if len(request.meshes(devices)) > 1:
        return True
    problem = problem_of(request, devices)
    local = least_time(problem.problem, _searched_configurations(base, problem))
    return int(local.time[0]) <= limits.threshold * fastest


def _searched_configurations(base: Searched, problem: GraphProblem) -> list[Int64Array]:
    """Return the searched configurations of each node of a rewritten graph's problem.

    New nodes and their neighbours have all configurations. Each other node has the one of the
    fastest strategy of the script's graph.
    """
    strategy = base.frontier.strategies[-1]
    before = {
        (group.members, len(group.options)): int(number)
        for group, number in zip(base.problem.choices, strategy, strict=True)
    }
    chosen = [before.get((group.members, len(group.options))) for group in problem.choices]
    new = {node for node, number in enumerate(chosen) if number is None}
    near = set(new)
    for edge in problem.problem.edges:
        if edge.source in new or edge.target in new:
            near |= {edge.source, edge.target}
    return [
        np.arange(len(group.options)) if node in near else np.array([chosen[node]])
        for node, group in enumerate(problem.choices)
    ]
