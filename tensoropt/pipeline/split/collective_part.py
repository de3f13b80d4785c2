"""Which part of a stage's time its collectives take."""

from __future__ import annotations

from tensoropt.cost.memory import Footprint, MemoryUse
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork
from tensoropt.parallel.resharding.step import LOCAL_KINDS

__all__ = ["HalfCollectives"]


class HalfCollectives:
    """Prices in which a collective takes half the time, and all else what it takes.

    What a strategy takes less by these is half of what its collectives take, however prices put
    them together with other work.

    Args:
        cost: the prices.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """See `CostModel`; of local steps the whole."""
        whole = self._cost.collective_nanoseconds(kind, axes, bytes_)
        return whole if kind in LOCAL_KINDS else max(1, whole // 2)

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """See `CostModel`."""
        return self._cost.operator_nanoseconds(work)

    def operator_memory(self, footprint: Footprint, /) -> MemoryUse:
        """See `CostModel`."""
        return self._cost.operator_memory(footprint)

    def step_nanoseconds(self) -> int:
        """See `CostModel`."""
        return self._cost.step_nanoseconds()
