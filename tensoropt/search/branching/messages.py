"""Messages of a problem's bounds for a problem with fewer configurations, to begin with."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import Restriction

__all__ = ["messages_left"]


def messages_left(
    messages: Float64Array,
    problem: Problem,
    smaller: Restriction,
    edges: BoolArray | None = None,
) -> Float64Array:
    """The messages to the slots that are left of a problem, in the order of `Bounds.messages`.

    Args:
        messages: of the problem.
        problem: with all configurations.
        smaller: with fewer.
        edges: bool[edges], those that are left; all where None.
    """
    left = np.ones(len(problem.edges), dtype=np.bool_) if edges is None else edges
    found = [np.zeros(0)]
    first = 0
    for end in (0, 1):
        for edge, slots, stays in zip(problem.edges, smaller.slots, left.tolist(), strict=True):
            if stays:
                found.append(messages[first + slots[end]])
            first += edge.time.shape[end]
    return np.concatenate(found)
