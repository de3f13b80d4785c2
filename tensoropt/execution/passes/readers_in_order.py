"""Let what reads a tensor run before what is made of its other readers' results.

The gradient that arrives at a layer is read twice: by the gradient by the layer's weights, and by
that by its input, from which the layer before goes on. TensorFlow's executor follows the chain and
leaves gradients by weights for later, so that what arrived at every layer is there to the end: a
U-Net's step took two thirds more memory. Operators are made in an order in which little is there at
a time, and of it only this is kept: what does not read the same tensor may run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

import tensorflow as tf

from tensoropt.cost.peak.kernel_memory import IN_LINE

__all__ = ["keep_readers_in_order"]

_STAY = frozenset({"Const", "Placeholder", "ReadVariableOp", "VarHandleOp", "VariableV2"})
"""Types of operators whose outputs are there anyhow."""


def keep_readers_in_order(operations: Sequence[tf.Operation], run: Iterable[tf.Operation]) -> None:
    """Add control dependencies from a tensor's readers to what reads its other readers' outputs.

    Only to what was made later, so that there are no circles.

    Args:
        operations: of one program, in the order in which they were made, which extends that of
            their dependencies.
        run: what is run; only what it needs is ordered, and nothing else becomes needed.
    """
    place = {operation: number for number, operation in enumerate(operations)}
    needed = _needed(run, place)
    waits: dict[tf.Operation, set[tf.Operation]] = {}
    for operation in operations:
        if operation not in needed or operation.type in _STAY or operation.type in IN_LINE:
            continue
        for tensor in operation.outputs:
            readers = _readers(tensor, needed) if tensor.dtype.is_floating else []
            if len(readers) < 2:
                continue
            freed = {reader: _let_go(reader) for reader in readers}
            ready = {reader for reader in readers if _is_ready(reader, tensor, place)}
            for reader in readers:
                held = sum(map(_bytes, reader.outputs))
                worth = {r for r in readers if freed[r] >= held or r in ready} - {reader}
                for after in {use for made in reader.outputs for use in _readers(made, needed)}:
                    if after.outputs:  # no update: it makes nothing
                        before = {r for r in worth if place[r] < place[after]}
                        waits.setdefault(after, set()).update(before)
    for operation, before in waits.items():
        before.difference_update(_dependencies(operation))
        operation._add_control_inputs(sorted(before, key=place.__getitem__))


def _readers(tensor: tf.Tensor, needed: Collection[tf.Operation]) -> set[tf.Operation]:
    """Of what is needed, what reads a tensor's memory: through views, too."""
    found = set()
    waiting = [tensor]
    while waiting:
        for use in waiting.pop().consumers():
            if use not in needed:
                continue
            if use.type in IN_LINE:
                waiting += use.outputs
            else:
                found.add(use)
    return found


def _is_ready(reader: tf.Operation, tensor: tf.Tensor, place: Mapping[tf.Operation, int]) -> bool:
    """Whether a reader waits for nothing beside a tensor, and leaves less than that: as the sum of
    what arrives over all but the channels."""
    made = place[tensor.op]
    return sum(map(_bytes, reader.outputs)) < _bytes(tensor) and all(
        each.type in _STAY or place.get(each, 0) <= made for each in _dependencies(reader)
    )


def _let_go(reader: tf.Operation) -> float:
    """The most bytes that are free once an operator has run: of what it reads but variables."""
    return sum(_bytes(each) for each in reader.inputs if each.op.type not in _STAY)


def _bytes(tensor: tf.Tensor) -> float:
    """Of one that stands for its batch's size, too: infinitely many."""
    size = tensor.shape.num_elements()
    return inf if size is None else size * tensor.dtype.size


def _needed(
    run: Iterable[tf.Operation], among: Collection[tf.Operation]
) -> Collection[tf.Operation]:
    """What is run and all that it depends on."""
    waiting = [operation for operation in run if operation in among]
    found = set(waiting)
    while waiting:
        for before in _dependencies(waiting.pop()):
            if before in among and before not in found:
                found.add(before)
                waiting.append(before)
    return found


def _dependencies(operation: tf.Operation) -> list[tf.Operation]:
    return [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
