"""What a stage computes that needs nothing of the others, and where that meets the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = ["Rest", "dependents"]


@dataclass(frozen=True, slots=True)
class Rest:
    """What of a stage's forward pass depends on what it receives; the other part does not.

    Attributes:
        operators: their names.
        joints: tensors of the other part that they read, and through which gradients flow.
        reads: names of the operators that they read, as of weights, and of what these are made of.
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
        own: Mapping[str, Iterable[int]],
        received: Collection[str],
    ) -> Rest:
        """Of a stage.

        Args:
            graph: operators by name.
            own: the stage's forward pass, in topological order, with the numbers of the inputs that
                gradients flow through.
            received: what it receives.
        """
        rest = dependents(
            own, lambda name: [t.operator for t in graph[name].inputs], received.__contains__
        )
        beside = frozenset(own) - rest
        through = (graph[name].inputs[n] for name in own if name in rest for n in own[name])
        joints = dict.fromkeys(tensor for tensor in through if tensor.operator in beside)
        return cls(
            frozenset(rest), tuple(joints), _reads(graph, rest, own), _reads(graph, beside, own)
        )


def dependents(
    own: Iterable[str],
    reads: Callable[[str], Iterable[str]],
    is_outside: Callable[[str], bool],
) -> set[str]:
    """Of a stage's operators, in topological order, those that need something from outside.

    Args:
        own: their names.
        reads: what one reads or waits for.
        is_outside: whether an operator is.
    """
    found: set[str] = set()
    for name in own:
        if any(each in found or is_outside(each) for each in reads(name)):
            found.add(name)
    return found


def _reads(
    graph: Mapping[str, Operator], names: Iterable[str], own: Container[str]
) -> frozenset[str]:
    """What some operators read that is not the stage's own, and what that is made of."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        for tensor in graph[waiting.pop()].inputs:
            read = graph[tensor.operator]
            if read.name not in own and read.name not in found and read.type != TRANSFER:
                found.add(read.name)
                waiting.append(read.name)
    return frozenset(found)
