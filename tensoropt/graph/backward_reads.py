"""The tensors of the forward pass that the backward pass reads, so that they are kept until
then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensoropt.graph.operator import Graph, TensorName
from tensoropt.tdl import types_with

__all__ = ["VIEWS", "BackwardReads"]

VIEWS = types_with(view="first")
"""Types whose output shares the memory of their first input."""


@dataclass(frozen=True, slots=True)
class BackwardReads:
    """The inputs and outputs of each operator that its gradient reads.

    Attributes:
        inputs: numbers of inputs, by operator name.
        outputs: numbers of outputs, by operator name.
    """

    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def kept(self, graph: Graph) -> frozenset[TensorName]:
        """Return the tensors that are kept because some gradient reads them.

        If a view is kept, so is the tensor behind it.
        """
        kept: set[TensorName] = set()
        for operator in graph:
            name = operator.name
            kept.update(TensorName(name, number) for number in self.outputs.get(name, ()))
            kept.update(operator.inputs[number] for number in self.inputs.get(name, ()))
        for tensor in list(kept):
            while graph[tensor.operator].type in VIEWS:
                tensor = graph[tensor.operator].inputs[0]
                kept.add(tensor)
        return frozenset(kept)
