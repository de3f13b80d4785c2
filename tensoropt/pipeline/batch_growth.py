"""How a training step grows with the batch: the shapes and the work of any number of examples.

A step is imported at one batch size. Which dimensions grow with it follows from the operators'
iteration spaces: an index that runs over the batch in one tensor does so in every other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import GraphError, OptionError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.problem.operators.local_work import LocalShapes, computes, local_work
from tensoropt.tdl import Derivation
from tensoropt.tdl.ops.random import RANDOM_TYPES

__all__ = ["BatchGrowth"]

_Dims = frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Like:
    """One of the operators that cost the same: its batch indices, and batch dimensions of its
    inputs and outputs."""

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
        kinds: of operators that are alike.
        examples: of the imported step.

    Raises:
        GraphError: if nothing is fed by the batch, or not equally many examples everywhere.
    """

    def __init__(self, graph: Graph, batch_inputs: Iterable[str]) -> None:
        self._graph = graph
        self.kinds = Kinds(graph)
        fed = sorted(batch_inputs)
        sizes = {graph[name].outputs[0].shape[:1] for name in fed}
        if len(sizes) != 1 or not next(iter(sizes)):
            raise GraphError(
                "a step that becomes a pipeline is fed examples, equally many everywhere. Got "
                f"{', '.join(f'{n} of {list(graph[n].outputs[0].shape)}' for n in fed) or 'none'}."
            )
        ((self.examples,),) = sizes
        self._dims: dict[TensorName, _Dims] = {TensorName(name, 0): frozenset({0}) for name in fed}
        self._of: dict[str, int] = {}  # the number of every operator's kind and growth
        self._like: list[_Like] = []
        self._works: dict[tuple[int, int, int], OperatorWork | None] = {}
        numbers: dict[object, int] = {}
        for operator in graph:
            indices, outputs = self._propagate(operator)
            for number, dims in enumerate(outputs):
                if dims and not operator.is_placeholder:
                    self._dims[TensorName(operator.name, number)] = dims
            arriving = tuple(self._dims.get(tensor, frozenset()) for tensor in operator.inputs)
            key = self.kinds.of[operator.name], indices, arriving, outputs
            self._of[operator.name] = numbers.setdefault(key, len(numbers))
            if self._of[operator.name] == len(self._like):
                derivation = self.kinds.derivations[operator.name]
                self._like.append(_Like(operator, derivation, indices, arriving, outputs))

    def alike(self, name: str) -> int:
        """A number that operators share which cost the same at any number of examples."""
        return self._of[name]

    def grows(self, name: str) -> bool:
        """Whether the work of an operator grows with the batch."""
        return self._like[self._of[name]].grows

    def tensor_bytes(self, tensor: TensorName, examples: int) -> int:
        """Bytes of a tensor of so many examples; of a variable, those of its value."""
        spec = self._graph[tensor.operator].value_spec(tensor.index)
        dims = self._dims.get(tensor, frozenset())
        whole = spec.bytes
        return self._part(whole, examples) if dims else whole

    def tensor_grows(self, tensor: TensorName) -> bool:
        """Whether a tensor grows with the batch."""
        return bool(self._dims.get(tensor))

    def tensor_shape(self, tensor: TensorName, examples: int) -> tuple[int, ...]:
        """Shape of a tensor of so many examples."""
        shape = self._graph[tensor.operator].value_spec(tensor.index).shape
        return self._shape(shape, self._dims.get(tensor, frozenset()), examples)

    def work(self, name: str, examples: int, differentiated_inputs: int) -> OperatorWork | None:
        """What one device does of an operator on so many examples; None for what only names."""
        if examples < 1:
            raise OptionError(f"work is of at least one example. Got {examples}.")
        key = self._of[name], examples, differentiated_inputs
        if key not in self._works:
            self._works[key] = self._work(key[0], examples, differentiated_inputs)
        return self._works[key]

    def _work(self, number: int, examples: int, differentiated: int) -> OperatorWork | None:
        like = self._like[number]
        operator, derivation = like.operator, like.derivation
        if not computes(operator):
            return None
        arriving = (*like.inputs, *(frozenset(),) * len(derivation.inputs))
        local = LocalShapes(
            ((),) * len(derivation.indices),
            tuple(
                self._shape(shape, _over(index_of, like.indices) | dims, examples)
                for shape, index_of, dims in zip(
                    derivation.input_shapes, derivation.inputs, arriving, strict=False
                )
            ),
            tuple(
                self._shape(shape, dims, examples)
                for shape, dims in zip(
                    derivation.output_shapes, (*like.outputs, frozenset()), strict=False
                )
            ),
        )
        work = local_work(operator, derivation, local, 1, differentiated)
        return work if not like.grows else replace(work, flops=self._part(work.flops, examples))

    def _part(self, whole: int, examples: int) -> int:
        return -(-whole * examples // self.examples)

    def _shape(self, shape: tuple[int, ...], dims: _Dims, examples: int) -> tuple[int, ...]:
        return tuple(
            self._part(extent, examples) if dim in dims and extent > 0 else extent
            for dim, extent in enumerate(shape)
        )

    def _propagate(self, operator: Operator) -> tuple[_Dims, tuple[_Dims, ...]]:
        """The indices of an operator that run over the batch, and such dimensions of its outputs.

        Where a description keeps the batch whole or there is none, an output's first dimension
        does if it is as long as the batch.
        """
        derivation = self.kinds.derivations[operator.name]
        if operator.is_placeholder:
            return frozenset(), (self._dims.get(TensorName(operator.name, 0), frozenset()),)
        arriving = [self._dims.get(tensor, frozenset()) for tensor in operator.inputs]
        if operator.type not in RANDOM_TYPES and not any(arriving):
            return frozenset(), (frozenset(),) * len(operator.outputs)
        over = {
            index_of[dim]
            for index_of, dims in zip(derivation.inputs, arriving, strict=False)
            for dim in dims
            if dim < len(index_of)
        }
        indices = frozenset(index for index in over if index is not None)
        found = []
        for number, spec in enumerate(operator.outputs):
            tied = number < len(derivation.outputs) and bool(indices)
            if tied:
                found.append(_over(derivation.outputs[number], indices))
            else:
                first = spec.shape[:1] == (self.examples,)
                found.append(frozenset({0}) if first else frozenset())
        return indices, tuple(found)


def _over(index_of: tuple[int | None, ...], indices: _Dims) -> _Dims:
    return frozenset(dim for dim, index in enumerate(index_of) if index in indices)
