"""Run all readers of a tensor before the operators that read the readers' outputs.

The gradient that arrives at a layer has two readers: they compute the gradient of the layer's
weights, and that of its input, which the previous layer needs. TensorFlow's executor follows the
chain of layers and runs the first kind of readers last, so the arriving gradients of all layers
stay in memory to the end: a U-Net's step took two thirds more memory. In the order in which
operators are created, they need little memory. This pass keeps that order among the readers of one
tensor; operators that read different tensors may still run side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

import tensorflow as tf

from tensoropt.cost.peak.kernel_memory import IN_LINE
from tensoropt.tdl import types_with

__all__ = ["keep_readers_in_order"]

_STAY = {"ReadVariableOp"}.union(
    *(types_with(role=role) for role in ("variable", "placeholder", "constant"))
)
"""Types of operators whose outputs stay in memory during the whole step."""


def keep_readers_in_order(operations: Sequence[tf.Operation], run: Iterable[tf.Operation]) -> None:
    """Let the readers of a reader's outputs wait for the tensor's other readers.

    Operations wait only for operations that were created earlier, so there are no circles.

    Args:
        operations: the operations of one program, in the order in which they were created, which
            respects their dependencies.
        run: the operations to run; only the operations that they need are ordered.
    """
    position = {operation: number for number, operation in enumerate(operations)}
    needed = _needed(run, position)
    waits: dict[tf.Operation, set[tf.Operation]] = {}
    for operation in operations:
        if operation not in needed or operation.type in _STAY or operation.type in IN_LINE:
            continue
        for tensor in operation.outputs:
            readers = _readers(tensor, needed) if tensor.dtype.is_floating else []
            if len(readers) < 2:
                continue
            freed = {reader: _freed_bytes(reader) for reader in readers}
            ready = {reader for reader in readers if _is_ready(reader, tensor, position)}
            for reader in readers:
                held = sum(map(_bytes, reader.outputs))
                first = {r for r in readers if freed[r] >= held or r in ready} - {reader}
                for after in {use for output in reader.outputs for use in _readers(output, needed)}:
                    if after.outputs:  # Updates have no outputs.
                        before = {r for r in first if position[r] < position[after]}
                        waits.setdefault(after, set()).update(before)
    for operation, before in waits.items():
        before.difference_update(_dependencies(operation))
        operation._add_control_inputs(sorted(before, key=position.__getitem__))


def _readers(tensor: tf.Tensor, needed: Collection[tf.Operation]) -> set[tf.Operation]:
    """The needed operations that read a tensor's memory, also through views."""
    readers = set()
    waiting = [tensor]
    while waiting:
        for use in waiting.pop().consumers():
            if use not in needed:
                continue
            if use.type in IN_LINE:
                waiting += use.outputs
            else:
                readers.add(use)
    return readers


def _is_ready(
    reader: tf.Operation, tensor: tf.Tensor, position: Mapping[tf.Operation, int]
) -> bool:
    """Whether a reader waits only for a tensor, and its outputs are smaller than the tensor.

    An example is the gradient of a bias: the sum of the arriving gradient over all but channels.
    """
    created = position[tensor.op]
    return sum(map(_bytes, reader.outputs)) < _bytes(tensor) and all(
        each.type in _STAY or position.get(each, 0) <= created for each in _dependencies(reader)
    )


def _freed_bytes(reader: tf.Operation) -> float:
    """The most bytes that are freed once an operator has run: its inputs, except variables."""
    return sum(_bytes(each) for each in reader.inputs if each.op.type not in _STAY)


def _bytes(tensor: tf.Tensor) -> float:
    """The bytes of a tensor; infinity if its shape is open."""
    size = tensor.shape.num_elements()
    return inf if size is None else size * tensor.dtype.size


def _needed(
    run: Iterable[tf.Operation], among: Collection[tf.Operation]
) -> Collection[tf.Operation]:
    """The operations to run and all operations on which they depend."""
    waiting = [operation for operation in run if operation in among]
    needed = set(waiting)
    while waiting:
        for before in _dependencies(waiting.pop()):
            if before in among and before not in needed:
                needed.add(before)
                waiting.append(before)
    return needed


def _dependencies(operation: tf.Operation) -> list[tf.Operation]:
    return [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
