"""Operators that are tied to one another: they have one configuration, that of their leader.

A variable is tied to its gradient, its updates and the slots that an optimizer keeps for it; any
other tensor's producer is tied to the tensor's gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.per_graph import per_graph
from tensoropt.tdl import types_with

__all__ = ["READS", "leaders"]

READS = types_with(value="same") - types_with(view="each")
"""Types of operators whose one output is the value of their input."""


@per_graph
def leaders(graph: Graph) -> Mapping[str, str]:
    """Return the leader of every operator: itself if it is tied to no other.

    The operators that read a variable's handle or change the variable in place, and its gradient,
    are tied to the variable. They have the layout in which it is stored. Variables that one
    operator changes together, such as a weight and its optimizer's slots, are tied to one another.
    The gradient by another tensor is tied to the producer of that tensor, whose gradient layout it
    has. A group's leader is its first variable in the graph, or its first operator without one.
    """
    parent = {operator.name: operator.name for operator in graph}
    order = {name: position for position, name in enumerate(parent)}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def union(first: str, second: str) -> None:
        variable_or_first, tied = sorted(
            (root(first), root(second)), key=lambda n: (not graph[n].is_variable, order[n])
        )
        parent[tied] = variable_or_first

    for operator in graph:
        for number, spec in enumerate(operator.input_specs):
            if number in operator.mutates or _is_tied(operator, spec.dtype):
                union(operator.inputs[number].operator, operator.name)
        if operator.gradient is not None:
            union(operator.gradient.x.operator, operator.name)
    return {name: root(name) for name in parent}


def _is_tied(operator: Operator, dtype: str) -> bool:
    """Whether an input of this dtype is a variable itself, to which the operator is tied."""
    return dtype == "resource" or (dtype.endswith("_ref") and operator.type in READS)
