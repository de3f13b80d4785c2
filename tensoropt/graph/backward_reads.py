"""What the backward pass reads of the forward pass, and so what is kept until then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensoropt.graph.operator import Graph, TensorName
from tensoropt.tdl import types_with

__all__ = ["VIEWS", "BackwardReads"]

VIEWS = types_with(view="first")
"""Types whose output is their first input's memory."""


@dataclass(frozen=True, slots=True)
class BackwardReads:
    """Per operator, which of its inputs and outputs its gradient reads.

    Attributes:
        inputs: numbers of inputs, by operator name.
        outputs: numbers of outputs, by operator name.
    """

    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def kept(self, graph: Graph) -> frozenset[TensorName]:
        """The tensors that stay until the backward pass, some gradient reading them.

        A view keeps what it is a view of.
        """
        found: set[TensorName] = set()
        for operator in graph:
            name = operator.name
            found.update(TensorName(name, number) for number in self.outputs.get(name, ()))
            found.update(operator.inputs[number] for number in self.inputs.get(name, ()))
        for tensor in list(found):
            while graph[tensor.operator].type in VIEWS:
                tensor = graph[tensor.operator].inputs[0]
                found.add(tensor)
        return frozenset(found)
