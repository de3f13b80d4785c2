"""The facts of an operator that name its layer, for operators of a plan or of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.tied_operators import leaders
from tensoropt.plan.operator_plan import Variable

__all__ = ["NamedOperator", "named_operators", "reads_of", "shape_of", "uses_of_variables"]


class NamedOperator(Protocol):
    """An operator; the attributes are those of `tensoropt.plan.operator_plan.OperatorPlan`."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def variable(self) -> Variable: ...


@dataclass(frozen=True, slots=True)
class _OfGraph:
    """A `NamedOperator` of a graph."""

    name: str
    type: str
    reads: tuple[str, ...]
    shape: tuple[int, ...]
    variable: Variable


def named_operators(graph: Graph) -> list[NamedOperator]:
    """Return the operators of a graph that a plan of it has: all but constants."""
    uses = uses_of_variables(graph)
    return [
        _OfGraph(
            operator.name,
            operator.type,
            reads_of(operator),
            shape_of(operator),
            uses[operator.name],
        )
        for operator in graph
        if not operator.is_constant
    ]


def shape_of(operator: Operator) -> tuple[int, ...]:
    """Return the shape of an operator's first output; empty if it has none."""
    return operator.value_spec(0).shape if operator.outputs else ()


def reads_of(operator: Operator) -> tuple[str, ...]:
    """Return the names of the operators that an operator reads."""
    if operator.gradient is not None:
        return (operator.gradient.x.operator,)
    return tuple(dict.fromkeys(tensor.operator for tensor in operator.inputs))


def uses_of_variables(graph: Graph) -> dict[str, Variable]:
    """Return the use of each variable, and an empty text for all other operators."""
    leader = leaders(graph)
    trained = {leader[each.gradient.x.operator] for each in graph if each.gradient is not None}
    return {
        operator.name: ""
        if not operator.is_variable
        else "weights"
        if operator.name in trained
        else "slots"
        for operator in graph
    }
