"""Tofu's objective: the bytes that all workers together receive (section 5.2)."""

from __future__ import annotations

import numpy as np

from reproduction.baselines.tofu_recursive import steps
from tensoropt.arrays import Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork
from tensoropt.parallel.resharding.step import LOCAL_KINDS
from tensoropt.problem.from_graph import GraphProblem

__all__ = ["Traffic", "step_bytes"]


class Traffic(ClusterCostModel):
    """Prices in bytes that a device receives instead of nanoseconds; computation is free.

    A price is at least 1, so a local step of a resharding counts as a byte.
    """

    __slots__ = ()

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """See `tensoropt.cost.model.CostModel`."""
        members = self.mesh.pieces(axes)
        if kind in LOCAL_KINDS:
            return 1
        if kind == "allgather":
            return max(1, (members - 1) * bytes_)
        if kind in ("broadcast", "exchange"):
            return max(1, bytes_)
        passes = 2 if kind == "allreduce" else 1
        return max(1, passes * bytes_ * (members - 1) // members)

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """See `tensoropt.cost.model.CostModel`."""
        del work
        return OperatorTime(0, 0)

    def step_nanoseconds(self) -> int:
        """See `tensoropt.cost.model.CostModel`."""
        return 0


def step_bytes(problem: GraphProblem) -> Int64Array:
    """int64[steps], the bytes that each halving adds to those that all workers receive (delta of
    Theorem 2).

    Args:
        problem: a problem priced by `Traffic`. Along axes that split nothing yet, devices are
            copies of the workers.
    """
    workers, totals = 1, [0]
    for axis, found in zip(problem.mesh.axes, steps(problem), strict=True):
        workers *= axis
        totals.append(workers * int(found.time[0]))
    return np.diff(np.array(totals, np.int64))
