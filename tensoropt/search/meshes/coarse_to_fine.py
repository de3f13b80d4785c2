"""Coarse-to-fine search: few mesh axes first, then one more at a time from what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Problem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.nearest import leader_assignments, nearest_options
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.meshes.refinement import Refinement
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.supported.series_parallel_hull import series_parallel_hull
from tensoropt.search.supported.supported_frontier import supported_frontier
from tensoropt.search.watch import best_known, keep, solving, tell, was_interrupted

__all__ = ["coarse_to_fine"]


def coarse_to_fine(
    build: Callable[[Mesh], GraphProblem], meshes: Sequence[Refinement], epsilon: float = 0.001
) -> tuple[GraphProblem, Frontier]:
    """The frontier on the last of some meshes, found on the first and refined from mesh to mesh.

    With the axes of a mesh, an operator's configurations grow exponentially, and so do a tensor's
    layouts. So, as Tofu's recursion (section 5.2) partitions between groups of devices before it
    does within, the problem is first solved on a mesh of few axes, one for each level of links;
    then an axis is split in two. Every strategy of the coarse mesh is one of the finer mesh, in
    which both new axes split what the old one did: these are known before the finer problem is
    solved, their costs prove most other configurations to be in no better strategy, and the
    frontier never gets worse. (Coarse-to-fine dynamic programming: Raphael, 2001.) Each mesh is
    searched by `series_parallel_hull` where the graph is series-parallel, else by
    `supported_frontier`.

    What is given up: an axis that the last mesh has whole is used whole, by every operator. What
    that costs no bound says; ``within`` is against all strategies on the last mesh.

    Args:
        build: makes the problem of a mesh.
        meshes: each one the mesh before with one axis split in two.
        epsilon: a mesh is searched until its frontier is proven to be as near, or the search gives
            up; more than 0.

    Returns:
        The problem on the last mesh, or on the one that an interruption came on, and its frontier;
        of data parallelism alone, if that came before the first frontier.
    """
    with solving():
        tell(f"mesh {meshes[0].mesh}", 0, len(meshes))
        problem = build(meshes[0].mesh)
        keep(partial(_data_parallelism, problem))
        try:
            frontier = _near(problem.problem, None, epsilon, last=len(meshes) == 1)
        except KeyboardInterrupt:
            found = best_known()
            if found is None:
                raise
            return problem, found
        for number, step in enumerate(meshes[1:], start=1):
            if was_interrupted():
                break
            keep(frontier)
            try:
                tell(f"mesh {step.mesh}", number, len(meshes))
                finer = build(step.mesh)
                known = lifted(problem, frontier, finer, step)
                last = number == len(meshes) - 1
                frontier, problem = _near(finer.problem, known, epsilon, last=last), finer
            except KeyboardInterrupt:
                if best_known() is None:
                    raise
                break
    return problem, frontier


def _data_parallelism(problem: GraphProblem) -> Frontier:
    """What is known before anything has been searched."""
    return replace(data_parallel.solve(problem), exact=False, within=None)


def _near(problem: Problem, known: Frontier | None, epsilon: float, *, last: bool) -> Frontier:
    """By supported strategies of the whole problem where its graph lets it, else by bounds.

    The former need no strategies to begin with: of a coarse mesh, few will do.
    """
    limits = DEFAULT_LIMITS
    share = epsilon if last else max(epsilon, limits.coarse_gap)
    outcome = series_parallel_hull(problem, known, share, limits)
    if outcome.is_too_large:
        outcome = supported_frontier(problem, known, epsilon, limits)
    return outcome.found


def lifted(
    coarse: GraphProblem, frontier: Frontier, fine: GraphProblem, step: Refinement
) -> Frontier:
    """A frontier's strategies on the finer mesh: both new axes split what the old one did.

    Nearly always an option says just that. A loader's only option may split more, where a number
    divides by one of the new axes alone; so costs are worked out anew.
    """
    assert step.split is not None
    strategies = np.empty_like(frontier.strategies)
    for node in range(strategies.shape[1]):
        used, of_point = np.unique(frontier.strategies[:, node], return_inverse=True)
        old, new = leader_assignments(coarse, node), leader_assignments(fine, node)
        # Options are numbered by what is kept for the backward pass, then by splits.
        ways = len(coarse.choices[node].options.kept)
        splits, finer_splits = len(old) // ways, len(new) // ways
        wanted = np.insert(old[used], step.split, old[used, step.split], axis=1)
        found = nearest_options(new[:finer_splits], wanted) + used // splits * finer_splits
        strategies[:, node] = found[of_point.ravel()]
    reduced = reduced_frontier(*fine.problem.costs(strategies), strategies)
    return replace(reduced, eliminations=frontier.eliminations)
