"""The fastest strategy by an integer program, as Alpa finds the splits of a stage."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["solve"]


def solve(problem: Problem, seconds: float = 60.0, gap: float = 0.01) -> Frontier:
    """The strategy that HiGHS finds for Alpa's program (Zheng et al. 2022, equation 1).

    A binary x of each configuration of a node, and a number y in [0, 1] of each pair of slots of an
    edge. The sum of a node's x is 1; the y of a slot sum to the x of its configurations. The sum of
    times is least. Memory is no part of the program.

    Args:
        problem: with times that are not negative.
        seconds: time limit of HiGHS.
        gap: share by which another strategy may be faster.

    Raises:
        SearchSizeError: if HiGHS finds no strategy in its time.
    """
    starts = np.cumsum([0, *(node.configurations for node in problem.nodes)])
    count, nodes = int(starts[-1]), len(problem.nodes)
    rows, columns = [np.repeat(np.arange(nodes), np.diff(starts))], [np.arange(count)]
    values, right = [np.ones(count)], [np.ones(nodes)]
    costs, row, column = [node.time for node in problem.nodes], nodes, count
    for edge in problem.edges:
        if edge.kind.costs.is_free:
            continue
        pairs = np.indices(edge.time.shape).reshape(2, -1)
        ends = (edge.source, edge.source_slots), (edge.target, edge.target_slots)
        for slots, count_of, (node, own) in zip(pairs, edge.time.shape, ends, strict=True):
            rows += [row + slots, row + own]
            columns += [column + np.arange(slots.size), np.arange(starts[node], starts[node + 1])]
            values += [np.ones(slots.size), -np.ones(own.size)]
            right.append(np.zeros(count_of))
            row += count_of
        costs.append(edge.time.ravel())
        column += pairs.shape[1]
    places = np.concatenate(rows), np.concatenate(columns)
    matrix = coo_array((np.concatenate(values), places), shape=(row, column)).tocsr()
    equal = np.concatenate(right)
    time = np.concatenate(costs)
    found = milp(
        time / max(1, time.max()),
        integrality=np.arange(column) < count,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, equal, equal),
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    if found.x is None:
        raise SearchSizeError(
            f"HiGHS finds a strategy in {seconds} s. Got none: {found.message}; allow more seconds."
        )
    chosen = [int(own.argmax()) for own in np.split(found.x[:count], starts[1:-1])]
    return single_strategy(problem, chosen, exact=False, within=found.mip_gap)
