"""Recomputation: the backward pass computes tensors again that the forward pass does not save.

If the gradient of an operator reads such a tensor, the operator gets another gradient function. It
recomputes the tensor, by resharding a saved tensor or by running operators again, and then calls
the registered gradient function. Control dependencies on the arriving gradient let this start only
in the backward pass, so the forward pass frees the tensor after its last reader. Every rank
recomputes the same tensors in the same order, so collectives keep their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.execution.edges.inputs import Inputs
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.gradient_functions.custom_gradients import overridden, registered_gradient
from tensoropt.execution.gradient_functions.matrix_products import GRADIENTS
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.keeping import Keeping, has_plain_inputs
from tensoropt.parallel.layout import Layout
from tensoropt.tensorflow_private import unrecorded_gradients

__all__ = ["Recomputation"]

Shards = list[list[tf.Tensor]]
Compute = Callable[[Operator, Shards], Shards]


class Recomputation:
    """Recomputes tensors in the backward pass of one program.

    Args:
        context: the program.
        inputs: the operators' inputs in the forward pass.
        reads: finds the tensors that gradients of the script's operators read; called only if some
            tensor is recomputed.
        compute: emits an operator on given inputs, and returns its outputs per rank.
    """

    def __init__(
        self,
        context: ProgramContext,
        inputs: Inputs,
        reads: Callable[[], BackwardReads],
        compute: Compute,
    ) -> None:
        self._graph = context.graph
        self._strategy = context.strategy
        self._world = context.world
        self._emitted = context.emitted
        self._inputs = inputs
        self._plan_steps = context.plan_steps
        self._target = context.target
        self._compute = compute
        self._updates_wait = context.updates_wait
        self._keeping = Keeping(context.strategy)
        self._reads = reads() if self._keeping.active else BackwardReads()
        self._computed: dict[str, Shards] = {}
        self._moved: dict[tuple[TensorName, Layout], list[tf.Tensor]] = {}

    def next_call(self) -> None:
        """Forget recomputed tensors. The gradients of the next call compute them once more."""
        self._computed.clear()
        self._moved.clear()

    def concerns(self, operator: Operator) -> bool:
        """Whether the gradient of an operator reads a recomputed tensor."""
        if not self._keeping.active or not has_plain_inputs(operator):
            return False
        return bool(self._recomputed_inputs(operator) or self._recomputed_outputs(operator))

    @contextlib.contextmanager
    def gradient(
        self, operator: Operator, position: int, replaced: frozenset[int]
    ) -> Iterator[None]:
        """While the context lasts, operations of an operator's type get its gradient function.

        Args:
            operator: an operator for which `concerns` is true.
            position: the position of the rank on which the operation is created.
            replaced: numbers of inputs that are replaced for the kernel on a shard.
        """

        def function(operation: tf.Operation, *upstream: Any) -> Any:
            after = [arrived for arrived in upstream if arrived is not None]
            with (
                self._target.control_dependencies(after),
                tf.name_scope(f"{operator.name}/recomputed"),
            ):
                inputs = list(operation.inputs)
                for number in self._recomputed_inputs(operator):
                    if number not in replaced:
                        inputs[number] = self._input(operator, number)[position]
                outputs = list(operation.outputs)
                for number, shards in self._outputs(operator).items():
                    outputs[number] = shards[position]
            return registered_gradient(GRADIENTS.get(operator.type, operator.type))(
                _Substituted(operation, inputs, outputs), *upstream
            )

        with overridden(self._target, operator.type, function):
            yield

    def lowered(self, operator: Operator, inputs: Shards) -> Shards:
        """Emit an operator with a rule, whose gradient runs the rule again.

        Args:
            operator: an operator for which `concerns` is true.
            inputs: the shards of each input.

        Returns:
            The outputs per rank.
        """
        width = len(self._world.ranks)

        def function(*flat: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[Any]]]:
            per_rank = self._compute(operator, _grouped(flat, width))
            outputs = [shard for of_rank in per_rank for shard in of_rank]

            def gradient(*upstream: Any) -> list[Any]:
                after = [arrived for arrived in upstream if arrived is not None]
                with self._target.control_dependencies(after):
                    return self._differentiated(operator, list(flat), upstream)

            return outputs, gradient

        flat = tf.custom_gradient(function)(*(shard for shards in inputs for shard in shards))
        flat = list(flat) if isinstance(flat, (list, tuple)) else [flat]
        count = len(flat) // width
        return [flat[position * count : (position + 1) * count] for position in range(width)]

    def _differentiated(
        self, operator: Operator, flat_inputs: list[tf.Tensor], upstream: Sequence[Any]
    ) -> list[Any]:
        """Run an operator's rule again, and return the gradients by the inputs of all ranks."""
        width = len(self._world.ranks)
        read = [
            self._input(operator, number) if self._keeping.read_again(operator, number) else shards
            for number, shards in enumerate(_grouped(flat_inputs, width))
        ]
        # Differentiate by copies, since other operators may read the tensors themselves.
        inputs = [[tf.identity(shard) for shard in shards] for shards in read]
        outputs = [shard for of_rank in self._compute(operator, inputs) for shard in of_rank]
        arrived = [(y, dy) for y, dy in zip(outputs, upstream, strict=True) if dy is not None]
        flat = [shard for shards in inputs for shard in shards]
        by_inputs: list[Any] = [None] * len(flat)
        differentiable = [number for number, shard in enumerate(flat) if _has_gradient(shard.dtype)]
        gradients = unrecorded_gradients(
            [y for y, _ in arrived],
            [flat[number] for number in differentiable],
            grad_ys=[dy for _, dy in arrived],
            gate_gradients=self._updates_wait,
        )
        for number, gradient in zip(differentiable, gradients, strict=True):
            by_inputs[number] = gradient
        return by_inputs

    def _recomputed_inputs(self, operator: Operator) -> list[int]:
        read = self._reads.inputs.get(operator.script_name, ())
        return [number for number in read if self._keeping.read_again(operator, number)]

    def _recomputed_outputs(self, operator: Operator) -> list[int]:
        read = self._reads.outputs.get(operator.script_name, ())
        if self._keeping.is_recomputed(operator.name):
            return list(read)
        return [
            number
            for number in read
            if self._keeping.returned_from(TensorName(operator.name, number)) is not None
        ]

    def _outputs(self, operator: Operator) -> dict[int, list[tf.Tensor]]:
        """The outputs that an operator's own gradient reads, recomputed or resharded back."""
        if self._keeping.is_recomputed(operator.name):
            outputs = self._recomputed(operator)
            return {
                n: [of_rank[n] for of_rank in outputs] for n in self._recomputed_outputs(operator)
            }
        return {
            n: self._resharded_back(TensorName(operator.name, n))
            for n in self._recomputed_outputs(operator)
        }

    def _input(self, operator: Operator, number: int) -> list[tf.Tensor]:
        """Return the shards of an input in the backward pass, one per rank."""
        if not self._keeping.read_again(operator, number):
            return self._inputs.shards(operator, number)
        tensor = operator.inputs[number]
        shards = self._at_producer(tensor)
        if not self._keeping.moved(operator, number):
            return shards
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        return self._resharded(tensor, shards, source, target)

    def _at_producer(self, tensor: TensorName) -> list[tf.Tensor]:
        """The shards of a tensor in its producer's layout, saved or recomputed."""
        if not self._keeping.is_recomputed(tensor.operator):
            return self._emitted.shards(tensor)
        outputs = self._recomputed(self._graph[tensor.operator])
        return [of_rank[tensor.index] for of_rank in outputs]

    def _recomputed(self, operator: Operator) -> Shards:
        if operator.name not in self._computed:
            inputs = [self._input(operator, number) for number in range(len(operator.inputs))]
            self._computed[operator.name] = self._compute(operator, inputs)
        return self._computed[operator.name]

    def _resharded_back(self, tensor: TensorName) -> list[tf.Tensor]:
        """Reshard a tensor to its producer's layout, from the copy that a reader saved."""
        saved_at = self._keeping.returned_from(tensor)
        assert saved_at is not None, "a tensor that is saved at a reader"
        operator, number = saved_at
        copy = self._inputs.shards(operator, number)
        source = self._strategy.input_slot(operator, number).forward
        return self._resharded(tensor, copy, source, self._strategy.output_slot(tensor).forward)

    def _resharded(
        self, tensor: TensorName, shards: list[tf.Tensor], source: Layout, target: Layout
    ) -> list[tf.Tensor]:
        if (tensor, target) not in self._moved:
            shape = self._graph.spec(tensor).shape
            dtype = shards[0].dtype.base_dtype.name
            steps = self._plan_steps(shape, dtype, source, target)
            label = f"{tensor.operator}/reshard_again"
            self._moved[tensor, target] = self._world.reshard(shards, steps, label)
        return self._moved[tensor, target]


class _Substituted:
    """Stands for an operation in a gradient function, with other inputs and outputs."""

    def __init__(
        self, operation: tf.Operation, inputs: list[tf.Tensor], outputs: list[tf.Tensor]
    ) -> None:
        self._operation = operation
        self.inputs = inputs
        self.outputs = outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)


def _has_gradient(dtype: tf.DType) -> bool:
    """Whether tensors of a dtype have gradients. Handles have: by lookups of a variable's rows."""
    return bool(dtype.is_floating or dtype.is_complex or dtype == tf.resource)


def _grouped(flat: Sequence[tf.Tensor], width: int) -> Shards:
    return [list(flat[first : first + width]) for first in range(0, len(flat), width)]
