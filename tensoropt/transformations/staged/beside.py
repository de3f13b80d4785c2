"""Parts of a stage that need other stages, and parts that do not, and the tensors between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = ["Rest", "dependents"]


@dataclass(frozen=True, slots=True)
class Rest:
    """The part of a stage's forward pass that depends on received tensors.

    Attributes:
        operators: names of its operators.
        joints: tensors of the other part that they read, and through which gradients flow.
        reads: names of the operators outside of the forward pass that they read, such as weights,
            with the operators that these are computed from.
        others_read: the same for the other part.
    """

    operators: frozenset[str]
    joints: tuple[TensorName, ...]
    reads: frozenset[str]
    others_read: frozenset[str]

    @classmethod
    def of(
        cls,
        graph: Mapping[str, Operator],
        forward: Mapping[str, Iterable[int]],
        received: Collection[str],
    ) -> Rest:
        """The part of a stage that depends on received tensors.

        Args:
            graph: operators by name.
            forward: the stage's forward pass, in topological order, with the numbers of the inputs
                that gradients flow through.
            received: names of the received tensors' operators.
        """
        rest = dependents(
            forward, lambda name: [t.operator for t in graph[name].inputs], received.__contains__
        )
        beside = frozenset(forward) - rest
        through = (graph[name].inputs[n] for name in forward if name in rest for n in forward[name])
        joints = dict.fromkeys(tensor for tensor in through if tensor.operator in beside)
        return cls(
            frozenset(rest),
            tuple(joints),
            _reads(graph, rest, forward),
            _reads(graph, beside, forward),
        )


def dependents(
    names: Iterable[str],
    reads: Callable[[str], Iterable[str]],
    is_outside: Callable[[str], bool],
) -> set[str]:
    """Those of a stage's operators that need a tensor from outside.

    Args:
        names: names of the stage's operators, in topological order.
        reads: returns the inputs and control inputs of an operator.
        is_outside: whether an operator is outside.
    """
    dependent: set[str] = set()
    for name in names:
        if any(read in dependent or is_outside(read) for read in reads(name)):
            dependent.add(name)
    return dependent


def _reads(
    graph: Mapping[str, Operator], names: Iterable[str], forward: Container[str]
) -> frozenset[str]:
    """Operators outside of the forward pass that some operators read, and all that these need."""
    outside: set[str] = set()
    waiting = list(names)
    while waiting:
        for tensor in graph[waiting.pop()].inputs:
            read = graph[tensor.operator]
            if read.name not in forward and read.name not in outside and read.type != TRANSFER:
                outside.add(read.name)
                waiting.append(read.name)
    return frozenset(outside)
