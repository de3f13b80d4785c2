"""Let updates of variables wait for the operators that still use the values to be replaced.

A read of a resource variable gives its buffer. An update that finds the buffer in use copies the
variable to a new one first. TensorFlow leaves the order open where the gradient of a weight is made
before the gradient of its layer's input, which reads the weight.
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
    """Whether a variable may take a value's buffer, or a piece of it, for its own."""
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
        operations: of one program, in the order in which they were made.
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
    behind: dict[tf.Operation, int] = {}
    for operation in operations:
        found = bits.get(operation, 0)
        for need in needs[operation]:
            found |= behind.get(need, 0)
        behind[operation] = found
    for update, uses in of_update.items():
        # An operation that was made before the update cannot need it.
        late = [each for each in uses if position[each] < position[update]]
        late = [each for each in late if not bits[each] & behind[update]]
        update._add_control_inputs(sorted(late, key=position.__getitem__))


def _read(operation: tf.Operation) -> list[tf.Operation]:
    return [*(each.op for each in operation.inputs), *operation.control_inputs]


def _needed(
    operations: Iterable[tf.Operation], needs: dict[tf.Operation, list[tf.Operation]]
) -> set[tf.Operation]:
    """Operations and all that they need."""
    waiting = [operation for operation in operations if operation in needs]
    found = set(waiting)
    while waiting:
        for need in needs[waiting.pop()]:
            if need not in found:
                found.add(need)
                waiting.append(need)
    return found


def _uses(update: tf.Operation) -> set[tf.Operation]:
    """The operations that read the buffers of the updated variables."""
    handles = [each for each in update.inputs if each.dtype == tf.resource]
    waiting = [use for each in handles for use in each.consumers() if use.type == "ReadVariableOp"]
    seen = set(waiting)
    found = set()
    while waiting:
        for output in waiting.pop().outputs:
            for use in output.consumers():
                if use.type not in _SAME_BUFFER:
                    found.add(use)
                elif use not in seen:
                    seen.add(use)
                    waiting.append(use)
    return found
