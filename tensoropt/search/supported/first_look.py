"""What a large problem looks like for one pair of weights: whether an exact search is in reach."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

__all__ = ["FirstLook", "first_look"]

_SWEEPS = 2


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


def first_look(problem: Problem, limits: SearchLimits) -> FirstLook | None:
    """Bounds and a strategy for one pair of weights, the mean worth of a byte; None where
    configurations are so few that an exact search is tried anyway."""
    if sum(node.configurations for node in problem.nodes) <= limits.looked_at_configurations:
        return None
    table = WeightedBounds(problem)
    bounds = table.bounds(1.0, problem.byte_worth, _SWEEPS)
    strategy = Neighbourhoods(problem, table).near_bounds(bounds)[None]
    memory, time = problem.costs(strategy)
    cost = float(time[0]) + problem.byte_worth * float(memory[0])
    left = int((bounds.min_marginals <= cost).sum())
    known = reduced_frontier(memory, time, strategy)
    too_much = left > limits.exact_configurations * limits.share(len(problem.nodes))
    return FirstLook(table, bounds, known, too_much)
