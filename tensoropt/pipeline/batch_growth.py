"""How a training step grows with the batch: shapes and work for any number of examples.

A step is imported at one batch size. The operators' iteration spaces tell which dimensions grow
with the batch: an index that runs over the batch in one tensor runs over it in all tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import GraphError, OptionError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.choices.kinds import kinds_of
from tensoropt.problem.operators.local_work import LocalShapes, computes, local_work
from tensoropt.tdl import Derivation
from tensoropt.tdl.ops.random import RANDOM_TYPES

__all__ = ["BatchGrowth"]

_Dims = frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class _OperatorClass:
    """Operators that cost the same at any number of examples.

    Attributes:
        operator: one of them.
        derivation: its iteration space.
        indices: the indices that run over the batch.
        inputs, outputs: the dimensions of each input and output that grow with the batch.
    """

    operator: Operator
    derivation: Derivation
    indices: _Dims
    inputs: tuple[_Dims, ...]
    outputs: tuple[_Dims, ...]

    @property
    def grows(self) -> bool:
        return bool(self.indices) or any(self.inputs) or any(self.outputs)


class BatchGrowth:
    """Work and sizes of a step's operators on some of its examples.

    Args:
        graph: one training step, shapes bound.
        batch_inputs: placeholders whose first dimension is the batch.

    Attributes:
        kinds: the kinds of operators, with their iteration spaces.
        examples: the number of examples of the imported step.

    Raises:
        GraphError: if there is no placeholder of the batch, or if placeholders have different
            numbers of examples.
    """

    def __init__(self, graph: Graph, batch_inputs: Iterable[str]) -> None:
        self._graph = graph
        self.kinds = kinds_of(graph)
        fed = sorted(batch_inputs)
        sizes = {graph[name].outputs[0].shape[:1] for name in fed}
        if len(sizes) != 1 or not next(iter(sizes)):
            raise GraphError(
                "a pipeline is fed by placeholders that have the same number of examples. Got "
                f"{', '.join(f'{n} of {list(graph[n].outputs[0].shape)}' for n in fed) or 'none'}."
            )
        ((self.examples,),) = sizes
        self._dims: dict[TensorName, _Dims] = {TensorName(name, 0): frozenset({0}) for name in fed}
        self._class_of: dict[str, int] = {}
        self._classes: list[_OperatorClass] = []
        self._works: dict[tuple[int, int, int], OperatorWork | None] = {}
        numbers: dict[object, int] = {}
        for operator in graph:
            indices, outputs = self._propagate(operator)
            for number, dims in enumerate(outputs):
                if dims and not operator.is_placeholder:
                    self._dims[TensorName(operator.name, number)] = dims
            inputs = tuple(self._dims.get(tensor, frozenset()) for tensor in operator.inputs)
            key = self.kinds.of[operator.name], indices, inputs, outputs
            self._class_of[operator.name] = numbers.setdefault(key, len(numbers))
            if self._class_of[operator.name] == len(self._classes):
                derivation = self.kinds.derivations[operator.name]
                self._classes.append(_OperatorClass(operator, derivation, indices, inputs, outputs))

    def alike(self, name: str) -> int:
        """Return the class of an operator. Operators of a class cost the same at any batch."""
        return self._class_of[name]

    def grows(self, name: str) -> bool:
        """Whether the work of an operator grows with the batch."""
        return self._classes[self._class_of[name]].grows

    def tensor_bytes(self, tensor: TensorName, examples: int) -> int:
        """Return the bytes of a tensor; for a variable, those of its value."""
        spec = self._graph[tensor.operator].value_spec(tensor.index)
        dims = self._dims.get(tensor, frozenset())
        whole = spec.bytes
        return self._part(whole, examples) if dims else whole

    def tensor_grows(self, tensor: TensorName) -> bool:
        """Whether a tensor grows with the batch."""
        return bool(self._dims.get(tensor))

    def tensor_shape(self, tensor: TensorName, examples: int) -> tuple[int, ...]:
        """Return the shape of a tensor at the given number of examples."""
        shape = self._graph[tensor.operator].value_spec(tensor.index).shape
        return self._shape(shape, self._dims.get(tensor, frozenset()), examples)

    def work(self, name: str, examples: int, differentiated_inputs: int) -> OperatorWork | None:
        """Return the work of an operator on one device; None if the operator computes nothing.

        Args:
            name: the operator.
            examples: at least one.
            differentiated_inputs: how many of its inputs are differentiated.
        """
        if examples < 1:
            raise OptionError(f"work is that of at least one example. Got {examples}.")
        key = self._class_of[name], examples, differentiated_inputs
        if key not in self._works:
            self._works[key] = self._work(key[0], examples, differentiated_inputs)
        return self._works[key]

    def _work(self, number: int, examples: int, differentiated: int) -> OperatorWork | None:
        of_class = self._classes[number]
        operator, derivation = of_class.operator, of_class.derivation
        if not computes(operator):
            return None
        inputs = (*of_class.inputs, *(frozenset(),) * len(derivation.inputs))
        local = LocalShapes(
            ((),) * len(derivation.indices),
            tuple(
                self._shape(shape, _dims_over(index_of, of_class.indices) | dims, examples)
                for shape, index_of, dims in zip(
                    derivation.input_shapes, derivation.inputs, inputs, strict=False
                )
            ),
            tuple(
                self._shape(shape, dims, examples)
                for shape, dims in zip(
                    derivation.output_shapes, (*of_class.outputs, frozenset()), strict=False
                )
            ),
        )
        work = local_work(operator, derivation, local, derivation.flops, differentiated)
        if not of_class.grows:
            return work
        return replace(work, flops=self._part(work.flops, examples))

    def _part(self, whole: int, examples: int) -> int:
        """Return the part of an amount of the whole batch, rounded up."""
        return -(-whole * examples // self.examples)

    def _shape(self, shape: tuple[int, ...], dims: _Dims, examples: int) -> tuple[int, ...]:
        return tuple(
            self._part(extent, examples) if dim in dims and extent > 0 else extent
            for dim, extent in enumerate(shape)
        )

    def _propagate(self, operator: Operator) -> tuple[_Dims, tuple[_Dims, ...]]:
        """Return the indices of an operator, and the dimensions of its outputs, that are the batch.

        If the iteration space does not tell (the description keeps the batch whole, or there is no
        description), the first dimension of an output is the batch if it is as long as the batch.
        """
        derivation = self.kinds.derivations[operator.name]
        if operator.is_placeholder:
            return frozenset(), (self._dims.get(TensorName(operator.name, 0), frozenset()),)
        inputs = [self._dims.get(tensor, frozenset()) for tensor in operator.inputs]
        if operator.type not in RANDOM_TYPES and not any(inputs):
            return frozenset(), (frozenset(),) * len(operator.outputs)
        read_by = {
            index_of[dim]
            for index_of, dims in zip(derivation.inputs, inputs, strict=False)
            for dim in dims
            if dim < len(index_of)
        }
        indices = frozenset(index for index in read_by if index is not None)
        outputs = []
        for number, spec in enumerate(operator.outputs):
            if number < len(derivation.outputs) and indices:
                outputs.append(_dims_over(derivation.outputs[number], indices))
            else:
                begins_with_batch = spec.shape[:1] == (self.examples,)
                outputs.append(frozenset({0}) if begins_with_batch else frozenset())
        return indices, tuple(outputs)


def _dims_over(index_of: tuple[int | None, ...], indices: _Dims) -> _Dims:
    """Return the dimensions of a tensor over which the given indices run."""
    return frozenset(dim for dim, index in enumerate(index_of) if index in indices)
