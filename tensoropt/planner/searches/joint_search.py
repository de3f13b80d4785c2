"""Joint search: the frontiers of rewritten graphs beside that of the script's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of, search_frontier
from tensoropt.planner.searches.rewritten_graphs import Candidate, JointLimits, candidates
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
        request: for it.
        problem: that was searched.
        frontier: of it.
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
    """The script's graph and rewritten ones, each with its frontier; the script's first.

    A candidate is first searched where a substitution has changed something: what it has in common
    with the script's graph, but for neighbours, stays as in the fastest strategy of that. Its
    frontier is searched where that takes at most `JointLimits.threshold` times the fastest step.

    Args:
        request: for the script's graph.
        devices: how many.
        substitutions: which; those of the package that logical graphs can have, if None.
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
    """The rewritten ones of `search_jointly`, beside a script's graph that was searched; with a
    ``share``, those that are estimated to take at most this share of the script's time."""
    request, limits = base.request, limits or JointLimits()
    fastest = int(base.frontier.time[-1])
    left = limits.searched
    near = partial(near_candidates, request, devices, substitutions, limits, share)
    for candidate in search_once(f"rewritten graphs {share}", request, devices, near):
        own = request.of_rewritten(candidate.rewrites, candidate.graph)
        if _is_promising(base, fastest, own, devices, limits):
            found = searched_alone(own, devices)
            yield found
            fastest, left = min(fastest, int(found.frontier.time[-1])), left - 1
        if not left:
            return


def near_candidates(
    request: Request,
    devices: int,
    substitutions: Sequence[Substitution] | None = None,
    limits: JointLimits | None = None,
    share: float | None = None,
) -> list[Candidate]:
    """Rewritten graphs of a step that may be worth a search, the fastest by estimate first; with a
    ``share``, as of `rewritten_graphs`."""
    known = _usual() if substitutions is None else applicable(substitutions)
    # The coarsest mesh, whose estimates are quick; of few devices it is the only one.
    mesh = request.meshes(devices)[0].mesh
    estimate = StepEstimate(request.cost_model(devices, mesh))
    limits = limits or JointLimits()
    return candidates(request.graph, request.roots, known, estimate, limits, share)


def searched_alone(request: Request, devices: int) -> Searched:
    """A graph with its frontier."""
    return Searched(request, *search_frontier(request, devices))


@cache
def _usual() -> tuple[Substitution, ...]:
    return applicable(substitutions_by_name().values())


def _is_promising(
    base: Searched, fastest: int, request: Request, devices: int, limits: JointLimits
) -> bool:
    """Whether a rewritten graph, searched where it differs, is near the fastest."""
    if len(request.meshes(devices)) > 1:
        return True  # which are searched from coarse to fine
    problem = problem_of(request, devices)
    kept = _near(base, problem)
    local = least_time(problem.problem, kept)
    return int(local.time[0]) <= limits.threshold * fastest


def _near(base: Searched, problem: GraphProblem) -> list[Int64Array]:
    """Per node of a rewritten graph's problem the configurations that are looked at: all of what is
    new and of its neighbours, one of the others."""
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
