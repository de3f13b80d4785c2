"""Data parallelism: variables are replicated and the batch is sharded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.baselines.named_dimensions import NamedDimensions, named_dimensions
from tensoropt.search.baselines.nearest import leader_assignments, nearest_option
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["incumbent", "solve"]


def solve(problem: GraphProblem) -> Frontier:
    """Return one strategy: operators split the batch over all devices, variables are replicated
    (section 2.2).

    The batch is the dimension that loaders split, in every tensor (`named_dimensions`). An operator
    without it, as an optimizer's update, is computed on every device. A batch of
    fewer examples than devices is split over as many as possible.
    """
    names = named_dimensions(problem)
    batches = _batches(problem, names)
    axes = len(problem.mesh.axes)
    strategy = []
    for number, group in enumerate(problem.choices):
        wanted = np.full(axes, NO_INDEX, dtype=np.int8)
        if not problem.graph[group.leader].is_variable:
            own = names.of_operator[group.leader]
            wanted[:] = next((n for n, name in enumerate(own) if name in batches), NO_INDEX)
        strategy.append(nearest_option(leader_assignments(problem, number), wanted))
    return single_strategy(problem.problem, strategy)


def incumbent(problem: GraphProblem) -> Frontier:
    """Return data parallelism as the known frontier before any search."""
    return replace(solve(problem), exact=False, within=None)


def _batches(problem: GraphProblem, names: NamedDimensions) -> frozenset[int]:
    """Return the names of the dimensions that loaders split."""
    found = set()
    for number, group in enumerate(problem.choices):
        if problem.graph[group.leader].is_placeholder:
            row = leader_assignments(problem, number)[0]  # however its output is kept
            found |= {names.of_operator[group.leader][n] for n in row.tolist() if n != NO_INDEX}
    return frozenset(found)
