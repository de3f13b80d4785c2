"""A resharding step as an operation of `collectives`."""

from __future__ import annotations

from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.local import Mask, Slice
from collectives.operations.operation import Collective, Local
from collectives.windows import MemberWindows
from tensoropt.parallel import resharding
from tensoropt.parallel.resharding import ReshardStep, Step

__all__ = ["collective", "local"]


def local(step: Step) -> Local:
    """The operation of a step that needs no communication."""
    if isinstance(step, resharding.Exchange):
        return _exchange(step)
    if step.kind == "slice":
        return Slice(_dim(step.to_dim))
    return Mask(_reducer(step))


def collective(step: Step, as_bfloat16: bool = False) -> Collective:
    """The operation of a step that communicates."""
    if isinstance(step, resharding.Exchange):
        return _exchange(step)
    if step.kind == "allgather":
        return Allgather(_dim(step.from_dim))
    if step.kind == "allreduce":
        return Allreduce(_reducer(step), as_bfloat16)
    if step.kind == "reduce_scatter":
        return ReduceScatter(_dim(step.to_dim), _reducer(step))
    return Alltoall(_dim(step.to_dim), _dim(step.from_dim))


def _exchange(step: resharding.Exchange) -> Exchange | ExchangeSum:
    windows = MemberWindows(step.starts, step.length, step.extent)
    return ExchangeSum(step.dim, windows) if step.back else Exchange(step.dim, windows, step.fill)


def _dim(dim: int | None) -> int:
    assert dim is not None, "the planner gives every such step its dimension"
    return dim


def _reducer(step: ReshardStep) -> str:
    assert step.reducer is not None, "the planner gives every such step its reducer"
    return step.reducer
