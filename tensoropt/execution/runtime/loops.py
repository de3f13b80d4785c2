"""The memory of loops in an emitted program, from their bodies.

TensorFlow begins iterations before earlier ones have ended. So operations that do not need the
state run ahead, such as a recurrent layer's product of its input and weights. Their results stay
until the state arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import tensorflow as tf

from tensoropt.cost.peak.device_program import DeviceProgram, Kernel
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.graph.from_tensorflow.called_shapes import LOOPS, loop_body
from tensoropt.tensor_spec import TensorSpec

__all__ = ["with_bodies"]

_READS_ITEMS = ("GatherV2", "StridedSlice")
"""Types by which an iteration reads its item of a sequence."""


def with_bodies(
    program: DeviceProgram,
    graph: tf.Graph,
    describe: Callable[[Sequence[tf.Operation]], DeviceProgram],
) -> DeviceProgram:
    """Return a program whose loops have the memory of their bodies.

    Args:
        program: the description of some operations of ``graph``.
        graph: a result of `inferred_graph`.
        describe: describes the part of a graph that some operations need.
    """

    def described(kernel: Kernel) -> Kernel:
        loop = graph.get_operation_by_name(kernel.name)
        if loop.type not in LOOPS:
            return kernel
        stacked = [_stacked_items(tensor) for tensor in loop.outputs]
        kept = sum(spec.bytes for spec in stacked if spec is not None)
        with ExitStack() as stack:
            try:
                results = stack.enter_context(loop_body(loop))
            except ValueError:  # the body was traced for other shapes
                return kernel
            body = program_peak(describe([result.op for result in results]))
            state = _State(results)
            ahead = state.ahead_bytes(loop.get_attr("parallel_iterations"), kept)
            unchanged = state.unchanged
        return replace(
            kernel,
            outputs=tuple(own or spec for own, spec in zip(stacked, kernel.outputs, strict=True)),
            unchanged=unchanged,
            body_bytes=body.bytes - body.resident_bytes + ahead,
        )

    return replace(program, kernels=tuple(map(described, program.kernels)))


def _stacked_items(tensor: tf.Tensor) -> TensorSpec | None:
    """Return the stacked items of a list that a loop has filled; None if none are read."""
    for reader in tensor.consumers() if tensor.dtype == tf.variant else ():
        if reader.type == "TensorListStack" and reader.outputs[0].shape.is_fully_defined():
            stacked = reader.outputs[0]
            return TensorSpec(tuple(stacked.shape.as_list()), stacked.dtype.name)
        if reader.type == "Identity":
            return _stacked_items(reader.outputs[0])
    return None


class _State:
    """The state that iterations of a loop hand on, and the operations that need it.

    Args:
        results: the results of the loop's body.

    Attributes:
        unchanged: the numbers of the results that are the body's inputs of the same numbers.
    """

    def __init__(self, results: Sequence[tf.Tensor]) -> None:
        self._operations = results[0].graph.get_operations()
        inputs = [operation for operation in self._operations if operation.type == "Placeholder"]
        self.unchanged = tuple(
            number for number, result in enumerate(results) if result.op is inputs[number]
        )
        constant = {inputs[number] for number in self.unchanged}
        self._needing = {  # operations that need the state, besides counters
            each for each in inputs if each not in constant and not each.outputs[0].dtype.is_integer
        }
        for operation in self._operations:
            if any(tensor.op in self._needing for tensor in operation.inputs):
                self._needing.add(operation)

    def ahead_bytes(self, iterations: int, kept_bytes: int) -> int:
        """Return the bytes that later iterations hold until the state arrives.

        While they run ahead, lists do not have their items yet.

        Args:
            iterations: the most that run at once. No more run than a sequence has items.
            kept_bytes: the items of lists after the last iteration.
        """
        items, bytes_ = 0, 0
        for operation in self._operations:
            if operation in self._needing or operation.type in ("Const", "Placeholder"):
                continue
            if operation.type in _READS_ITEMS:
                shape = operation.inputs[0].shape
                items = max(items, shape[0] or 0 if shape.rank else 0)
            for tensor in operation.outputs:
                is_read = any(reader in self._needing for reader in tensor.consumers())
                if is_read and tensor.dtype.is_floating and tensor.shape.is_fully_defined():
                    bytes_ += tensor.shape.num_elements() * tensor.dtype.size
        item_bytes = kept_bytes // items if items else 0
        return min(items or iterations, iterations) * max(0, bytes_ - item_bytes)
