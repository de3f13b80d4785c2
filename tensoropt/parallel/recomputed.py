"""The operators and reshardings of the forward pass that a backward pass executes again.

This follows the rules of execution (`tensoropt.execution.lowering.recomputation`). A tensor that
several gradients read is made again once. An operator that a lowering rule divides into several has
no single gradient function. So it is computed again as a whole if its gradient reads a tensor that
is not kept.
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

__all__ = ["Recomputed", "recomputed"]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The work that is done again, in the order of the first gradient that needs it.

    Attributes:
        computed: names of operators that are computed again. A name appears twice if the operator's
            own gradient computes it again by its rule, and another gradient reads its outputs.
        moved: tensors that are resharded again, each with the source and the target layout.
    """

    computed: tuple[str, ...] = ()
    moved: tuple[tuple[TensorName, Layout, Layout], ...] = ()


def recomputed(strategy: Strategy, reads: BackwardReads) -> Recomputed:
    """Return the work that the backward pass does again under a strategy.

    Args:
        strategy: strategy of the step's graph, with the choice of kept copies.
        reads: the tensors of the forward pass that the backward pass reads.
    """
    collector = _Collector(strategy, reads)
    if not collector.active:
        return Recomputed()
    carried = differentiated_inputs(strategy.graph)
    for operator in reversed(tuple(strategy.graph)):
        if operator.name in carried:
            collector.differentiate(operator)
    return Recomputed(tuple(collector.computed), tuple(collector.moved))


class _Collector:
    """Collects the work of one backward pass."""

    def __init__(self, strategy: Strategy, reads: BackwardReads) -> None:
        self.computed: list[str] = []
        self.moved: dict[tuple[TensorName, Layout, Layout], None] = {}
        self._strategy = strategy
        self._graph: Graph = strategy.graph
        self._reads = reads
        self._keeping = Keeping(strategy)
        self._computed: set[str] = set()
        self._there: set[tuple[TensorName, Layout]] = set()

    @property
    def active(self) -> bool:
        return self._keeping.active

    def differentiate(self, operator: Operator) -> None:
        """Add the work that makes available the tensors that an operator's gradient reads."""
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
            if keeping.is_recomputed(operator.name) or keeping.returned_from(tensor) is not None
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
        """Make an input again, as its reader needs it, unless it is kept."""
        keeping, strategy = self._keeping, self._strategy
        if not keeping.read_again(operator, number):
            return
        tensor = operator.inputs[number]
        if keeping.is_recomputed(tensor.operator):
            self._compute(self._graph[tensor.operator])
        if keeping.moved(operator, number):
            source = strategy.output_slot(tensor).forward
            self._move(tensor, source, strategy.input_slot(operator, number).forward)

    def _output(self, tensor: TensorName) -> None:
        """Make an output again that its own gradient reads: compute it, or reshard a copy back."""
        if self._keeping.is_recomputed(tensor.operator):
            self._compute(self._graph[tensor.operator])
            return
        copy = self._keeping.returned_from(tensor)
        assert copy is not None, "called only for outputs that are not kept"
        source = self._strategy.input_slot(*copy).forward
        self._move(tensor, source, self._strategy.output_slot(tensor).forward)

    def _compute(self, operator: Operator) -> None:
        if operator.name not in self._computed:
            self._computed.add(operator.name)
            self._read_all(operator)
            self.computed.append(operator.name)

    def _move(self, tensor: TensorName, source: Layout, target: Layout) -> None:
        if (tensor, target) not in self._there:
            self._there.add((tensor, target))
            self.moved[tensor, source, target] = None
