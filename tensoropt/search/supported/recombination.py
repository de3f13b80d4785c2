"""Exact recombination: the frontier of all that mixes some known strategies.

Where neighbours on a frontier's hull differ in many nodes, strategies with some nodes as in the one
and some as in the other fill the gap between them (path relinking: Glover, "Tabu search and
adaptive memory programming", 1997). Here all of them are searched, by eliminations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict, whole_strategies
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["recombine"]


def recombine(
    problem: Problem, incumbent: Frontier, groups: Iterable[Sequence[int]], limits: SearchLimits
) -> Int32Array:
    """The frontier of all that mixes some known strategies, for groups of their numbers.

    A group whose mixtures are too many to be searched adds nothing.

    Returns:
        int32[any, nodes].
    """
    found = [incumbent.strategies[:0]]
    for group in groups:
        choices = incumbent.strategies[list(group)]
        kept = [np.unique(own).astype(np.int64) for own in choices.T]
        mixed = ft_ldp(restrict(problem, kept), limits)
        if mixed.is_too_large:
            continue
        found.append(whole_strategies(kept, mixed.found.strategies))
    return np.concatenate(found)
