"""The copies that one device keeps of an operator for the backward pass."""

from __future__ import annotations

from math import prod

from tensoropt.cost.memory import Footprint
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker.operator_shard import NAMES, OperatorShard

__all__ = ["Copies", "footprint"]


def footprint(shard: OperatorShard, copies: Copies) -> Footprint:
    """The bytes that a device holds for an operator, by their purpose."""
    operator = shard.operator
    if operator.is_variable:
        dtype = str(operator.attributes.get("dtype", operator.outputs[0].dtype))
        itemsize = TensorSpec((), dtype.removesuffix("_ref")).itemsize
        return Footprint(variable_bytes=prod(shard.outputs[0]) * itemsize)
    if operator.gradient is not None:
        return Footprint(gradient_bytes=shard.output_bytes())
    read = shard.input_bytes(copies.at_reader(operator))
    names = operator.type in NAMES and not operator.is_placeholder
    if operator.mutates or operator.type in VIEWS or names:
        return Footprint(moved_bytes=read)
    made = shard.output_bytes()
    return Footprint(
        output_bytes=made,
        added_bytes=made if operator.type in ("BiasAdd", "BiasAddV1") else 0,
        kept_bytes=shard.output_bytes(copies.where_made(operator)),
        moved_bytes=read,
    )


class Copies:
    """The tensors that are kept for the backward pass, and in which layout (the execution memory
    model).

    A view counts as the tensor of which it is a view. Variables and fed tensors are there anyway. A
    tensor that only one reader's gradient reads is kept in that reader's layout. Any other tensor
    is kept in its producer's layout, and in each other layout in which it is read.
    """

    def __init__(self, graph: Graph, reads: BackwardReads) -> None:
        self._graph = graph
        self._reads = reads
        readers: dict[TensorName, list[tuple[str, int]]] = {}
        self._sizes = {
            operator.name: _known_bytes(operator.value_spec(0))
            for operator in graph
            if operator.is_variable
        }
        self._leading: set[str] = set()  # views between a tensor and its readers
        for operator in graph:
            for number in reads.inputs.get(operator.name, ()):
                tensor, views = self._viewed(operator.inputs[number])
                readers.setdefault(tensor, []).append((operator.name, number))
                self._leading.update(views)
        producers = {
            self._viewed(TensorName(name, number))[0]
            for name, numbers in reads.outputs.items()
            for number in numbers
        }
        self._elsewhere = {
            tensor
            for tensor, one in readers.items()
            if len(one) == 1 and tensor not in producers and not self._is_there(tensor)
        }
        self._made = {*readers, *producers} - self._elsewhere
        self._at_reader = {end for tensor in self._elsewhere for end in readers[tensor]}

    def where_made(self, operator: Operator) -> tuple[int, ...]:
        """The numbers of the outputs that are kept in the operator's own layout; fed tensors are
        there anyway."""
        numbers = range(len(operator.outputs))
        if operator.is_placeholder:
            return tuple(numbers)
        return tuple(n for n in numbers if TensorName(operator.name, n) in self._made)

    def at_reader(self, operator: Operator) -> tuple[int, ...]:
        """The numbers of the inputs that are kept in this operator's layout, and in no other."""
        numbers = range(len(operator.inputs))
        return tuple(n for n in numbers if (operator.name, n) in self._at_reader)

    def of_edge(self, operator: Operator, number: int) -> bool:
        """Whether the copy that resharding makes of an input is kept beside the tensor."""
        kept = self._viewed(operator.inputs[number])[0] not in self._elsewhere
        return kept and self.is_read(operator, number)

    def is_read(self, operator: Operator, number: int) -> bool:
        """Whether the backward pass reads an input in the layout of an operator."""
        if operator.type in VIEWS:
            return number == 0 and operator.name in self._leading
        return number in self._reads.inputs.get(operator.name, ())

    def is_large_weight(self, operator: Operator, number: int) -> bool:
        """Whether an input is a variable with at least 1/256 of the bytes of all variables.

        Its copy counts at the reader although the backward pass does not read it.
        """
        size = self._sizes.get(self._viewed(operator.inputs[number])[0].operator)
        return size is not None and 256 * size >= sum(self._sizes.values())

    def _is_there(self, tensor: TensorName) -> bool:
        operator = self._graph[tensor.operator]
        return operator.is_variable or operator.is_placeholder or operator.is_constant

    def _viewed(self, tensor: TensorName) -> tuple[TensorName, list[str]]:
        """The tensor behind a tensor's views, and these views."""
        views = []
        while self._graph[tensor.operator].type in VIEWS:
            operator = self._graph[tensor.operator]
            if operator.is_constant:
                break
            views.append(operator.name)
            tensor = operator.inputs[0]
        return tensor, views


def _known_bytes(spec: TensorSpec) -> int:
    return 0 if -1 in spec.shape else spec.bytes
