"""The option of a node that is nearest to a wanted split."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem

__all__ = ["leader_assignments", "nearest_option", "nearest_options"]


def leader_assignments(problem: GraphProblem, node: int) -> Int8Array:
    """int8[K, axes]: the index of its leader that every axis splits, for each option of a node."""
    group = problem.choices[node]
    return group.options.followers[group.members.index(group.leader)].assigned


def nearest_option(assigned: Int8Array, wanted: Int8Array) -> int:
    """Return the first option that splits as wanted along the most axes, and along no other axis.

    An axis is left out where the extent does not divide, or a tied operator cannot follow.

    Args:
        assigned: int8[K, axes], with one row at least; a loader's only option is the answer even
            where it splits otherwise.
        wanted: int8[axes].
    """
    fits = ((assigned == wanted) | (assigned == NO_INDEX)).all(axis=1)
    kept = (assigned != NO_INDEX).sum(axis=1)
    return int(np.where(fits, kept, -1).argmax())


def nearest_options(assigned: Int8Array, wanted: Int8Array) -> Int64Array:
    """`nearest_option` of every row of ``wanted``, int8[W, axes]."""
    exact = {row.tobytes(): option for option, row in enumerate(assigned)}
    options = [
        exact[key] if (key := row.tobytes()) in exact else nearest_option(assigned, row)
        for row in wanted
    ]
    return np.array(options, dtype=np.int64)
