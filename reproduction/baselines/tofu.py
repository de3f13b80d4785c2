"""Tofu as the paper simulates it: every tensor is split over all devices, none is replicated."""

from __future__ import annotations

from math import prod

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.parallel.choices.options import Follower
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.tdl import Derivation

__all__ = ["fully_split", "solve"]


def solve(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The fastest strategy of those that hold no tensor twice (section 5.1).

    "Splitting all the tensors among all the devices and disabling tensor replication" is said of
    tensors, which the graph stores: outputs and weights. An operand that an operator gathers for
    its own computation is not stored, as in Tofu, whose operators fetch what they lack.

    Tofu minimises communication. If the work of every operator is divided by all devices,
    computation takes about the same time under any split (Tofu, section 5), so the fastest strategy
    has the least communication.
    """
    kept = [fully_split(problem, node) for node in range(len(problem.choices))]
    return least_time(problem.problem, kept, limits)


def fully_split(problem: GraphProblem, node: int) -> Int64Array:
    """The options of a node that split its tensors over the most devices.

    Those are all devices if extents divide. A partial sum does not count as a split tensor. The
    largest of several outputs counts; statistics beside it have the layout that the operator gives
    them.
    """
    group = problem.choices[node]
    pieces = np.zeros(len(group.options), dtype=np.int64)
    for name, follower in zip(group.members, group.options.followers, strict=True):
        if problem.graph[name].gradient is None:
            pieces += _pieces(problem.derivations[name], follower, problem.mesh)
    return np.flatnonzero(pieces == pieces.max())


def _pieces(derivation: Derivation, follower: Follower, mesh: Mesh) -> Int64Array:
    """For each option the number of devices over which the largest output is split."""
    if not derivation.outputs:
        return np.ones(len(follower.assigned), dtype=np.int64)
    sizes = [prod(shape) for shape in derivation.output_shapes]
    dims = derivation.outputs[int(np.argmax(sizes))]
    along = np.array([n in dims for n in range(follower.indices)] + [False])
    assert NO_INDEX == -1  # index -1 selects the last element
    sizes_of_axes = np.array(mesh.axes, dtype=np.int64)
    found: Int64Array = np.where(along[follower.assigned], sizes_of_axes, 1).prod(axis=1)
    return found
