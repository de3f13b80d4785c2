"""One operator under one configuration, in the form in which its time is measured."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.tdl import Derivation

__all__ = ["LocalOperator"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalOperator:
    """One operator of a script under one configuration, and the gradients that it computes.

    Attributes:
        operator: the operator in the logical graph.
        derivation: its derivation.
        configuration: how it is split.
        differentiated: the inputs whose gradient is computed.
        work: the work that its time is looked up by.
    """

    operator: Operator
    derivation: Derivation
    configuration: Configuration
    differentiated: tuple[int, ...]
    work: OperatorWork
