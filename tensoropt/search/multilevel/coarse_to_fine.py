"""Coarse-to-fine search: few mesh axes first, then one more at a time from what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.nearest import leader_assignments, nearest_options
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.multilevel.refinement import Refinement
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.watch import interruptible, keep, tell, was_interrupted

__all__ = ["Known", "coarse_to_fine"]


class Known(NamedTuple):
    """Strategies of a similar step: of the same operators, with other shapes or prices.

    Attributes:
        problem: the problem of that step on one mesh.
        frontier: its strategies.
    """

    problem: GraphProblem
    frontier: Frontier


def coarse_to_fine(
    build: Callable[[Mesh], GraphProblem],
    meshes: Sequence[Refinement],
    epsilon: float = 0.0,
    limits: SearchLimits = DEFAULT_LIMITS,
    known: Known | None = None,
) -> tuple[GraphProblem, Frontier]:
    """Return the frontier on the last of some meshes, found on the first and refined from mesh to
    mesh.

    With the axes of a mesh, an operator's configurations grow exponentially, and so do a tensor's
    layouts. So, as Tofu's recursion (section 5.2) partitions between groups of devices before it
    does within, the problem is first solved on a mesh of few axes, one for each level of links;
    then an axis is split in two. Every strategy of the coarse mesh is one of the finer mesh, in
    which both new axes split the dimensions of the old one. The finer search begins with these
    strategies as its incumbent; they prove most other configurations to be in no better strategy,
    and the frontier never gets worse. (Coarse-to-fine dynamic programming: Raphael, 2001.) Each
    mesh is searched by `branch_and_bound`; a coarse mesh within a wide gap, and not divided.

    If strategies of a similar step are known, the search begins with these, on their mesh: then
    also a search of little time returns strategies that were searched on the last mesh.

    Not found are strategies in which an operator uses part of an axis of the last mesh. The proven
    gap, ``within``, is against all strategies on the last mesh; the gain from more axes is not
    bounded.

    Args:
        build: makes the problem of a mesh.
        meshes: each one the mesh before with one axis split in two.
        epsilon: the gap at which the search of the last mesh ends; 0 for that of the limits.
        limits: of the search on each mesh.
        known: strategies to begin with; without effect if their step has other operators, or if
            their mesh is none of the meshes.

    Returns:
        The problem on the last mesh, or on the mesh on which the search was ended, and its
            frontier. If it was interrupted before the first frontier, that of data parallelism.
    """
    first, problem, known = _beginning(build, meshes, known)

    def on_mesh(mesh: GraphProblem, incumbent: Frontier | None, *, last: bool) -> Outcome:
        return branch_and_bound(
            mesh.problem,
            (epsilon or limits.approximate_gap) if last else max(epsilon, limits.coarse_gap),
            limits,
            incumbent=incumbent,
            closes=last and epsilon == 0,
            divides=last,
        )

    @interruptible
    def search() -> Outcome:
        nonlocal problem
        keep(partial(data_parallel.incumbent, problem), last_resort=True)
        incumbent = None
        if known is not None:
            incumbent = _carried(known.problem, known.frontier, problem)
            keep(incumbent)
        outcome = on_mesh(problem, incumbent, last=first == len(meshes) - 1)
        for number, step in enumerate(meshes[first + 1 :], start=first + 1):
            if was_interrupted():
                break
            keep(outcome.found)
            tell(f"mesh {step.mesh}", number, len(meshes))
            finer = build(step.mesh)
            incumbent = _carried(problem, outcome.found, finer, step.split)
            outcome = on_mesh(finer, incumbent, last=number == len(meshes) - 1)
            problem = finer
        return outcome

    frontier = search().found
    return problem, frontier


def _beginning(
    build: Callable[[Mesh], GraphProblem], meshes: Sequence[Refinement], known: Known | None
) -> tuple[int, GraphProblem, Known | None]:
    """Return the number of the mesh that is searched first, its problem, and what is known there.

    It is the mesh of known strategies if these choose for the same operators, and the first mesh
    otherwise, on which nothing is known.
    """
    for number, step in enumerate(meshes):
        if known is not None and step.mesh == known.problem.mesh:
            tell(f"mesh {step.mesh}", number, len(meshes))
            problem = build(step.mesh)
            if _leaders(known.problem) == _leaders(problem):
                return number, problem, known
    tell(f"mesh {meshes[0].mesh}", 0, len(meshes))
    return 0, build(meshes[0].mesh), None


def _leaders(problem: GraphProblem) -> list[str]:
    """Return the operators that a problem chooses for."""
    return [group.leader for group in problem.choices]


def _carried(
    old: GraphProblem, frontier: Frontier, new: GraphProblem, split: int | None = None
) -> Frontier:
    """Return a frontier's strategies in another problem with the same nodes.

    Nearly always an option of the new problem splits as the old one does. Where an extent is not
    divisible, it may split less, and a loader's only option may split more; so costs are computed
    anew.

    Args:
        old: the problem of the frontier.
        frontier: its strategies.
        new: the other problem.
        split: the axis of the old mesh that became this axis and the next of the new one; both
            split as the old one did. None if the meshes are equal.
    """
    strategies = np.empty_like(frontier.strategies)
    for node in range(strategies.shape[1]):
        used, of_point = np.unique(frontier.strategies[:, node], return_inverse=True)
        known, possible = leader_assignments(old, node), leader_assignments(new, node)
        # Options are numbered by which copies are saved for the backward pass, then by splits.
        splits, ways = len(known) // _ways(old, node), _ways(new, node)
        new_splits = len(possible) // ways
        wanted = known[used]
        if split is not None:
            wanted = np.insert(wanted, split, wanted[:, split], axis=1)
        kept = np.where(used // splits < ways, used // splits, 0)
        options = nearest_options(possible[:new_splits], wanted) + kept * new_splits
        strategies[:, node] = options[of_point.ravel()]
    reduced = reduced_frontier(*new.problem.costs(strategies), strategies)
    return replace(reduced, eliminations=frontier.eliminations)


def _ways(problem: GraphProblem, node: int) -> int:
    """Return the number of ways to keep the copies of a node's output."""
    return len(problem.choices[node].options.kept)
