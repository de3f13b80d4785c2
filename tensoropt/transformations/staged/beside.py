"""The two parts of a stage's forward pass: with and without tensors of other stages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = ["DependentPart", "dependents"]


@dataclass(frozen=True, slots=True)
class DependentPart:
    """The part of a stage's forward pass that depends on received tensors.

    Attributes:
        operators: names of its operators.
        joints: tensors of the independent part that they read, and through which gradients flow.
        reads: names of the operators outside of the forward pass that they need, such as weights.
        independent_reads: names of the operators outside of the forward pass that the independent
            part needs.
    """

    operators: frozenset[str]
    joints: tuple[TensorName, ...]
    reads: frozenset[str]
    independent_reads: frozenset[str]

    @classmethod
    def of(
        cls,
        graph: Mapping[str, Operator],
        forward: Mapping[str, Iterable[int]],
        received: Collection[str],
    ) -> DependentPart:
        """The part of a stage that depends on received tensors.

        Args:
            graph: operators by name.
            forward: the stage's forward pass, in topological order, with the numbers of the inputs
                that gradients flow through.
            received: names of the received tensors' operators.
        """
        dependent = dependents(
            forward, lambda name: [t.operator for t in graph[name].inputs], received.__contains__
        )
        independent = frozenset(forward) - dependent
        differentiated = (
            graph[name].inputs[n] for name in forward if name in dependent for n in forward[name]
        )
        joints = dict.fromkeys(t for t in differentiated if t.operator in independent)
        return cls(
            frozenset(dependent),
            tuple(joints),
            _reads(graph, dependent, forward),
            _reads(graph, independent, forward),
        )


def dependents(
    names: Iterable[str],
    reads: Callable[[str], Iterable[str]],
    is_outside: Callable[[str], bool],
) -> set[str]:
    """The operators of a stage that depend on an operator outside of it.

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
    """The operators outside of the forward pass that the named ones depend on."""
    outside: set[str] = set()
    waiting = list(names)
    while waiting:
        for tensor in graph[waiting.pop()].inputs:
            read = graph[tensor.operator]
            if read.name not in forward and read.name not in outside and read.type != TRANSFER:
                outside.add(read.name)
                waiting.append(read.name)
    return frozenset(outside)
