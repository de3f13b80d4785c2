"""What a stage computes that needs nothing of the others, and where that meets the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.pipeline.microbatches.step_graph import PART

__all__ = ["Rest"]


@dataclass(frozen=True, slots=True)
class Rest:
    """What of a stage's forward pass depends on what it receives; the other part does not.

    Attributes:
        operators: their names.
        joints: tensors of the other part that they read, and through which gradients flow.
        reads: names of the operators that they read, those of parts by what these are parts of.
        others_read: the same of the other part.
    """

    operators: frozenset[str]
    joints: tuple[TensorName, ...]
    reads: frozenset[str]
    others_read: frozenset[str]

    @classmethod
    def of(
        cls,
        graph: Mapping[str, Operator],
        own: Iterable[str],
        received: Collection[str],
        flows: Mapping[str, Iterable[int]],
    ) -> Rest:
        """Of a stage.

        Args:
            graph: operators by name.
            own: the stage's forward pass, in topological order.
            received: what it receives.
            flows: of some of these operators the numbers of inputs that gradients flow through.
        """
        own = list(own)
        rest: set[str] = set()
        for name in own:
            read = [tensor.operator for tensor in graph[name].inputs]
            if any(each in rest or each in received for each in read):
                rest.add(name)
        beside = frozenset(own) - rest
        through = (
            graph[name].inputs[n] for name in own if name in rest for n in flows.get(name, ())
        )
        joints = dict.fromkeys(tensor for tensor in through if tensor.operator in beside)
        return cls(frozenset(rest), tuple(joints), _reads(graph, rest), _reads(graph, beside))


def _reads(graph: Mapping[str, Operator], names: Iterable[str]) -> frozenset[str]:
    read = (graph[tensor.operator] for name in names for tensor in graph[name].inputs)
    return frozenset(
        each.name if each.type != PART else str(each.attributes["boundary"]) for each in read
    )
