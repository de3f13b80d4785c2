"""Let updates of variables wait for the operators that still read the old values.

A read of a resource variable returns the variable's buffer. If an update finds the buffer in use,
it first copies the variable to a new buffer. TensorFlow leaves the order open if the gradient of a
weight is computed before the gradient of the layer's input, which reads the weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from tensoropt.tdl import types_with

__all__ = ["is_assigned", "let_updates_wait"]

_UPDATES = ("ResourceApply", "AssignAddVariableOp", "AssignSubVariableOp")
_SAME_BUFFER = types_with(view="first") | types_with(view="each")
_PIECE_OF_BUFFER = _SAME_BUFFER | types_with(piece_of_input=True)


def is_assigned(value: tf.Tensor) -> bool:
    """Whether an assignment may make a value's buffer, or a piece of it, that of a variable."""
    waiting, seen = [value.op], {value.op}
    while waiting:
        for output in waiting.pop().outputs:
            for use in output.consumers():
                if use.type in ("Assign", "AssignVariableOp"):
                    return True
                if use.type in _PIECE_OF_BUFFER and use not in seen:
                    seen.add(use)
                    waiting.append(use)
    return False


def let_updates_wait(operations: Sequence[tf.Operation], run: Iterable[tf.Operation]) -> None:
    """Add control dependencies from operators that read variables to updates of the variables.

    Args:
        operations: the operations of one program, in the order in which they were created.
        run: the operations to run; an update waits only for operations that they need.
    """
    updates = [operation for operation in operations if operation.type.startswith(_UPDATES)]
    if not updates:
        return
    position = {operation: number for number, operation in enumerate(operations)}
    needs = {
        operation: [each for each in _read(operation) if each in position]
        for operation in operations
    }
    needed = _needed(run, needs)
    of_update = {update: _uses(update) & needed for update in updates}
    bits = {use: 1 << number for number, use in enumerate(set().union(*of_update.values()))}
    awaited: dict[tf.Operation, int] = {}  # bits of the uses that an operation waits for
    for operation in operations:
        bits_awaited = bits.get(operation, 0)
        for need in needs[operation]:
            bits_awaited |= awaited.get(need, 0)
        awaited[operation] = bits_awaited
    for update, uses in of_update.items():
        # An operation that was created before the update cannot need the update.
        late = [each for each in uses if position[each] < position[update]]
        late = [each for each in late if not bits[each] & awaited[update]]
        update._add_control_inputs(sorted(late, key=position.__getitem__))


def _read(operation: tf.Operation) -> list[tf.Operation]:
    return [*(each.op for each in operation.inputs), *operation.control_inputs]


def _needed(
    operations: Iterable[tf.Operation], needs: dict[tf.Operation, list[tf.Operation]]
) -> set[tf.Operation]:
    """Operations and all operations on which they depend."""
    waiting = [operation for operation in operations if operation in needs]
    needed = set(waiting)
    while waiting:
        for need in needs[waiting.pop()]:
            if need not in needed:
                needed.add(need)
                waiting.append(need)
    return needed


def _uses(update: tf.Operation) -> set[tf.Operation]:
    """The operations that read the buffers of the updated variables."""
    handles = [each for each in update.inputs if each.dtype == tf.resource]
    waiting = [use for each in handles for use in each.consumers() if use.type == "ReadVariableOp"]
    seen = set(waiting)
    uses = set()
    while waiting:
        for output in waiting.pop().outputs:
            for use in output.consumers():
                if use.type not in _SAME_BUFFER:
                    uses.add(use)
                elif use not in seen:
                    seen.add(use)
                    waiting.append(use)
    return uses
