"""One operator under one configuration, as it is timed."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.tdl import Derivation

__all__ = ["LocalOperator"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalOperator:
    """One operator of a script under one configuration, and which gradients it has.

    Attributes:
        operator: of the logical graph.
        derivation: of it.
        configuration: how it is split.
        differentiated: inputs by which its backward pass differentiates.
        work: what it is priced by.
    """

    operator: Operator
    derivation: Derivation
    configuration: Configuration
    differentiated: tuple[int, ...]
    work: OperatorWork
