"""All ways from some known strategies to others: the exact frontier of what they have.

Where neighbours on a frontier's hull differ in many nodes, strategies with some nodes as in the one
and some as in the other fill the gap between them (path relinking: Glover, "Tabu search and
adaptive memory programming", 1997). Here all of them are searched, by eliminations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.reduced_cost_fixing import restricted
from tensoropt.search.exact.ft_ldp import eliminated
from tensoropt.search.exact.heuristic_elimination import Heuristic
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["relinked"]


_MOST_STATES = 512


def relinked(problem: Problem, known: Frontier, groups: Iterable[Sequence[int]]) -> Int32Array:
    """The frontier of all that mixes some known strategies, for groups of their numbers.

    A group of which there is too much to search is left out.

    Returns:
        int32[any, nodes].
    """
    found = [known.strategies[:0]]
    for group in groups:
        choices = known.strategies[list(group)]
        kept = [np.unique(own).astype(np.int64) for own in choices.T]
        try:
            mixed = eliminated(restricted(problem, kept), Heuristic(), _MOST_STATES)
        except SearchSizeError:
            continue  # no mixture of these is found, and none was promised
        columns = [own[mixed.strategies[:, node]] for node, own in enumerate(kept)]
        found.append(np.stack(columns, axis=1).astype(np.int32))
    return np.concatenate(found)
