"""What a step makes again in its backward pass, operator by operator and move by move.

The rules are those of execution (`tensoropt.execution.lowering.recomputation`): a tensor that
several gradients read is made once; an operator that a rule spells out has no kernel whose gradient
could be given a tensor, so it is computed again where its gradient reads one that is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import gradient_is_local
from tensoropt.parallel.keeping import Keeping, has_plain_inputs
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy

__all__ = ["Remade", "remade"]


@dataclass(frozen=True, slots=True)
class Remade:
    """What is made again, in the order of the first gradient that reads it.

    Attributes:
        computed: names of operators that are computed again; twice where its own gradient
            computes one as a rule spells it out and another's reads its outputs.
        moved: tensors that are resharded again, and from which layout to which.
    """

    computed: tuple[str, ...] = ()
    moved: tuple[tuple[TensorName, Layout, Layout], ...] = ()


def remade(strategy: Strategy, reads: BackwardReads) -> Remade:
    """What one backward pass makes again under a strategy.

    Args:
        strategy: of the step's graph, with what is kept.
        reads: what the backward pass reads of the forward pass.
    """
    again = _Again(strategy, reads)
    if not again.active:
        return Remade()
    carried = differentiated_inputs(strategy.graph)
    for operator in reversed(tuple(strategy.graph)):
        if operator.name in carried:
            again.differentiate(operator)
    return Remade(tuple(again.computed), tuple(again.moved))


class _Again:
    def __init__(self, strategy: Strategy, reads: BackwardReads) -> None:
        self.computed: list[str] = []
        self.moved: dict[tuple[TensorName, Layout, Layout], None] = {}
        self._strategy = strategy
        self._graph: Graph = strategy.graph
        self._reads = reads
        self._keeping = Keeping(strategy)
        self._done: set[str] = set()
        self._there: set[tuple[TensorName, Layout]] = set()

    @property
    def active(self) -> bool:
        return self._keeping.active

    def differentiate(self, operator: Operator) -> None:
        """Make what an operator's gradient reads and finds nowhere."""
        if not has_plain_inputs(operator):
            return
        keeping = self._keeping
        inputs = [
            number
            for number in self._reads.inputs.get(operator.name, ())
            if keeping.read_again(operator, number)
        ]
        outputs = [
            tensor
            for number in self._reads.outputs.get(operator.name, ())
            for tensor in [TensorName(operator.name, number)]
            if keeping.remade(operator.name) or keeping.returned_from(tensor) is not None
        ]
        if not inputs and not outputs:
            return
        if self._is_spelled_out(operator):
            self._read_all(operator)
            self.computed.append(operator.name)
            return
        for number in inputs:
            self._input(operator, number)
        for tensor in outputs:
            self._output(tensor)

    def _is_spelled_out(self, operator: Operator) -> bool:
        derivation = self._strategy.derivations[operator.name]
        configuration = self._strategy.configurations[operator.name]
        split = zip(derivation.indices, configuration.splits, strict=True)
        if any(axes and index.spelled_out for index, axes in split):
            return True
        return not gradient_is_local(derivation, configuration)

    def _read_all(self, operator: Operator) -> None:
        for number in range(len(operator.inputs)):
            self._input(operator, number)

    def _input(self, operator: Operator, number: int) -> None:
        """An input as the backward pass has it: kept, or made again now."""
        keeping, strategy = self._keeping, self._strategy
        if not keeping.read_again(operator, number):
            return
        tensor = operator.inputs[number]
        if keeping.remade(tensor.operator):
            self._compute(self._graph[tensor.operator])
        if keeping.moved(operator, number):
            source = strategy.output_slot(tensor).forward
            self._move(tensor, source, strategy.input_slot(operator, number).forward)

    def _output(self, tensor: TensorName) -> None:
        """An output that its own gradient reads: computed again, or come back from a copy."""
        if self._keeping.remade(tensor.operator):
            self._compute(self._graph[tensor.operator])
            return
        found = self._keeping.returned_from(tensor)
        assert found is not None, "asked for where it is"
        source = self._strategy.input_slot(*found).forward
        self._move(tensor, source, self._strategy.output_slot(tensor).forward)

    def _compute(self, operator: Operator) -> None:
        if operator.name not in self._done:
            self._done.add(operator.name)
            self._read_all(operator)
            self.computed.append(operator.name)

    def _move(self, tensor: TensorName, source: Layout, target: Layout) -> None:
        if (tensor, target) not in self._there:
            self._there.add((tensor, target))
            self.moved[tensor, source, target] = None
