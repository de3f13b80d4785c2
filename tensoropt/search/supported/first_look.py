"""What a large problem looks like for one pair of weights: whether an exact search is in reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods, lowest

__all__ = ["FirstLook", "first_look"]

# Only of more configurations it is looked whether bounds leave too many.
_MANY = 50_000
# So many are too many for an exact search; or, of more nodes than these, in proportion.
_MOST_LEFT, _MANY_NODES = 8_000, 800
_SWEEPS, _BEST = 2, 8


@dataclass(frozen=True, slots=True, eq=False)
class FirstLook:
    """What was found by it, for who goes on.

    Attributes:
        table: the problem in flat arrays.
        bounds: for the weights at which it was looked.
        known: a strategy of little cost for them.
        leaves_too_much: whether bounds leave more than can be searched exactly.
    """

    table: WeightedBounds
    bounds: Bounds
    known: Frontier
    leaves_too_much: bool


def first_look(problem: Problem) -> FirstLook | None:
    """Bounds and a strategy for what a byte is worth on the whole; None if few configurations make
    that unnecessary."""
    if sum(node.configurations for node in problem.nodes) <= _MANY:
        return None
    table = WeightedBounds(problem)
    weights = 1.0, problem.byte_worth
    bounds = table.bounds(*weights, _SWEEPS)
    each = np.split(bounds.of_configuration, table.start[1:-1])
    first = [int(own.argmin()) for own in each]
    promising = lowest(bounds.of_configuration, table.start, _BEST)
    strategy = np.array([Neighbourhoods(problem, table).improved(weights, first, promising)])
    memory, time = problem.costs(strategy)
    cost = weights[0] * float(time[0]) + weights[1] * float(memory[0])
    left = int((bounds.of_configuration <= cost).sum())
    known = Frontier(memory, time, strategy.astype(np.int32), exact=False)
    most = _MOST_LEFT * max(1.0, len(problem.nodes) / _MANY_NODES)
    return FirstLook(table, bounds, known, left > most)
