"""All ways from one known strategy to another: the exact frontier of what the two have.

Where neighbours on a frontier's hull differ in many nodes, strategies with some nodes as in the one
and some as in the other fill the gap between them (path relinking: Glover, "Tabu search and
adaptive memory programming", 1997). Here all of them are searched, by eliminations.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tensoropt.search.by_elimination import eliminated
from tensoropt.search.elimination import Heuristic
from tensoropt.search.frontier import Frontier
from tensoropt.search.problem import Problem
from tensoropt.search.pruning import restricted

__all__ = ["relinked"]

Int32Array = npt.NDArray[np.int32]

_MOST_STATES = 512


def relinked(problem: Problem, known: Frontier, pairs: Iterable[tuple[int, int]]) -> Int32Array:
    """Strategies between two known ones, for some pairs of their numbers.

    Returns:
        int32[any, nodes].
    """
    found = [known.strategies[:0]]
    for pair in pairs:
        ends = known.strategies[list(pair)]
        kept = [np.unique(choices).astype(np.int64) for choices in ends.T]
        between = eliminated(restricted(problem, kept), Heuristic(), _MOST_STATES)
        columns = [own[between.strategies[:, node]] for node, own in enumerate(kept)]
        found.append(np.stack(columns, axis=1).astype(np.int32))
    return np.concatenate(found)
