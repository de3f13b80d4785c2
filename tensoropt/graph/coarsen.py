"""Operators that must share one configuration, tied into groups."""

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
    """The leader of every operator, itself where nothing ties it.

    A variable, what reads it, what changes it in place, and its gradient all lie as the variable
    is stored; variables that one operator changes together (an optimizer's slots) lie alike. The
    gradient by another tensor lies as that tensor's gradient does at its producer.
    """
    parent = {operator.name: operator.name for operator in graph}
    order = {name: position for position, name in enumerate(parent)}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def union(one: str, other: str) -> None:
        first, second = sorted(
            (find(one), find(other)), key=lambda n: (not graph[n].is_variable, order[n])
        )
        parent[second] = first

    for operator in graph:
        for number, spec in enumerate(operator.input_specs):
            if number in operator.mutates or _is_tied(operator, spec.dtype):
                union(operator.inputs[number].operator, operator.name)
        if operator.gradient is not None:
            union(operator.gradient.x.operator, operator.name)
    return {name: find(name) for name in parent}


def _is_tied(operator: Operator, dtype: str) -> bool:
    """Whether an input of such a type is a variable itself, that its reader lies with."""
    return dtype == "resource" or (dtype.endswith("_ref") and operator.type in READS)
