"""What one operator of a graph takes under a configuration (equation 1)."""

from __future__ import annotations

from tensoropt.cost.model import CostModel
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.operators.inner_collectives import inner_collectives
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.tdl import Derivation

__all__ = ["operator_nanoseconds"]


def operator_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    differentiated_inputs: int,
) -> int:
    """t_c of equation 1: computing the operator forward and backward, on one device's piece.

    What only names a value (a variable, a loader, a read) takes no time.
    """
    work = operator_work(operator, derivation, configuration, mesh, differentiated_inputs)
    if work is None:
        return 0
    inner = inner_collectives(operator, derivation, configuration, mesh, differentiated_inputs)
    return cost.operator_nanoseconds(work).total + sum(
        each.times * cost.collective_nanoseconds(each.kind, each.axes, each.bytes) for each in inner
    )
