"""Coarse-to-fine search: few mesh axes first, then one more at a time from what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

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

__all__ = ["coarse_to_fine"]


def coarse_to_fine(
    build: Callable[[Mesh], GraphProblem],
    meshes: Sequence[Refinement],
    epsilon: float = 0.0,
    limits: SearchLimits = DEFAULT_LIMITS,
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

    Not found are strategies in which an operator uses part of an axis of the last mesh. The proven
    gap, ``within``, is against all strategies on the last mesh; the gain from more axes is not
    bounded.

    Args:
        build: makes the problem of a mesh.
        meshes: each one the mesh before with one axis split in two.
        epsilon: the gap at which the search of the last mesh ends; 0 for that of the limits.
        limits: of the search on each mesh.

    Returns:
        The problem on the last mesh, or on the mesh on which the search was ended, and its
            frontier. If it was interrupted before the first frontier, that of data parallelism.
    """
    tell(f"mesh {meshes[0].mesh}", 0, len(meshes))
    problem = build(meshes[0].mesh)

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
        outcome = on_mesh(problem, None, last=len(meshes) == 1)
        for number, step in enumerate(meshes[1:], start=1):
            if was_interrupted():
                break
            keep(outcome.found)
            tell(f"mesh {step.mesh}", number, len(meshes))
            finer = build(step.mesh)
            incumbent = _lift(problem, outcome.found, finer, step)
            outcome = on_mesh(finer, incumbent, last=number == len(meshes) - 1)
            problem = finer
        return outcome

    frontier = search().found
    return problem, frontier


def _lift(
    coarse: GraphProblem, frontier: Frontier, fine: GraphProblem, step: Refinement
) -> Frontier:
    """Return a frontier's strategies on the finer mesh: both new axes split as the old one did.

    Nearly always an option does exactly this. A loader's only option may split more, where an
    extent is divisible by one of the new axes alone; so costs are computed anew.
    """
    assert step.split is not None
    strategies = np.empty_like(frontier.strategies)
    for node in range(strategies.shape[1]):
        used, of_point = np.unique(frontier.strategies[:, node], return_inverse=True)
        old, new = leader_assignments(coarse, node), leader_assignments(fine, node)
        # Options are numbered by which copies are saved for the backward pass, then by splits.
        ways = len(coarse.choices[node].options.kept)
        splits, finer_splits = len(old) // ways, len(new) // ways
        wanted = np.insert(old[used], step.split, old[used, step.split], axis=1)
        options = nearest_options(new[:finer_splits], wanted) + used // splits * finer_splits
        strategies[:, node] = options[of_point.ravel()]
    reduced = reduced_frontier(*fine.problem.costs(strategies), strategies)
    return replace(reduced, eliminations=frontier.eliminations)
