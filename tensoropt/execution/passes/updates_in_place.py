"""Let updates of variables wait for those who still use the values that they replace.

Reading a resource variable gives its buffer. An update that finds the buffer in use makes another
one and copies the variable first. TensorFlow leaves open which comes first where the gradient by a
weight is made before the gradient by its layer's input, which reads the weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

__all__ = ["is_assigned", "let_updates_wait"]

_UPDATES = ("ResourceApply", "AssignAddVariableOp", "AssignSubVariableOp")
_SAME_BUFFER = frozenset(
    {"ReadVariableOp", "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"}
    | {"StopGradient", "PreventGradient", "EnsureShape"}
)


_PIECE_OF_BUFFER = _SAME_BUFFER | {"Slice", "Split", "SplitV", "StridedSlice", "Unpack"}


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


def let_updates_wait(operations: Sequence[tf.Operation], needed_by: Iterable[tf.Operation]) -> None:
    """Add control dependencies from operators that use values of variables to updates of these.

    Args:
        operations: of one program, in the order in which they were made.
        needed_by: what runs whenever one of them does: only what these need is waited for.
    """
    updates = [operation for operation in operations if operation.type.startswith(_UPDATES)]
    if not updates:
        return
    place = {operation: number for number, operation in enumerate(operations)}
    needs = {
        operation: [each for each in _read(operation) if each in place] for operation in operations
    }
    run = _needed(needed_by, needs)
    of_update = {update: _uses(update) & run for update in updates}
    bits = {use: 1 << number for number, use in enumerate(set().union(*of_update.values()))}
    behind: dict[tf.Operation, int] = {}
    for operation in operations:
        found = bits.get(operation, 0)
        for need in needs[operation]:
            found |= behind.get(need, 0)
        behind[operation] = found
    for update, uses in of_update.items():
        # One that was made before the update cannot need it.
        late = [each for each in uses if place[each] < place[update]]
        late = [each for each in late if not bits[each] & behind[update]]
        update._add_control_inputs(sorted(late, key=place.__getitem__))


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
    """What reads the buffers of the variables that are updated."""
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
