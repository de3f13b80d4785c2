"""The variables to which a step only adds, such as sums and counts of metrics.

The changes of such a variable by several batches can be added up in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import tensorflow as tf

from tensoropt.frontend.session.fetches import fetched_operators
from tensoropt.frontend.steps.step_graph import Captured
from tensoropt.frontend.steps.traced_step import TracedStep
from tensoropt.graph.from_tensorflow import called_functions, function_closure, needed_operations
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["added_variables"]

_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
_WRITES = frozenset({"AssignAddVariableOp", "AssignVariableOp"})
_CALLS = frozenset({"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "While"})
_WITHOUT_EFFECT = _READS | _CALLS | {"Assert", "Placeholder", "VarHandleOp"}
_SUMS = frozenset({"Add", "AddV2"})


def added_variables(step: TracedStep) -> tuple[Captured, ...] | None:
    """Return the variables that a step changes, if it only adds to them.

    Returns:
        The variables; None if the step changes a variable otherwise, adds what it has read of a
        changed variable, or has another state, such as that of random operators.
    """
    roots = fetched_operators(step.fetched, step.operations)
    needed = list(needed_operations(step.graph, roots))
    writes = [operation for operation in needed if operation.type in _WRITES]
    written = {operation.inputs[0].op for operation in writes}
    if not all(_has_known_effect(operation, written) for operation in needed):
        return None
    read = _dependents(needed, written)
    for write in writes:
        added = _added(write)
        if added is None or added.op in read:
            return None
    names = {handle.name for handle in written}
    captured = tuple(each for each in step.captured if each.handle in names)
    return captured if len(captured) == len(names) else None


def _has_known_effect(operation: tf.Operation, written: Collection[tf.Operation]) -> bool:
    """Whether an operator writes variables, reads them, or has no effect."""
    if operation.type in _WRITES:
        return True
    if operation.type not in _READS and any(each.op in written for each in operation.inputs):
        return False
    bodies = function_closure(operation.graph, called_functions(operation.node_def.attr))
    inner = {node.op for body in bodies.values() for node in body.node_def}
    return all(
        kind in _WITHOUT_EFFECT or kind in bodies or not op_def_registry.get(kind).is_stateful
        for kind in {operation.type, *inner}
    )


def _dependents(
    needed: Iterable[tf.Operation], handles: Collection[tf.Operation]
) -> set[tf.Operation]:
    """The needed operators whose values depend on the values of variables."""
    among, found = set(needed), set[tf.Operation]()
    waiting = [
        use for handle in handles for use in handle.outputs[0].consumers() if use.type in _READS
    ]
    while waiting:
        operation = waiting.pop()
        if operation in among and operation not in found:
            found.add(operation)
            waiting += [use for output in operation.outputs for use in output.consumers()]
    return found


def _added(write: tf.Operation) -> tf.Tensor | None:
    """The tensor that an operator adds to a variable; None if it assigns anything else."""
    handle, value = write.inputs
    if write.type == "AssignAddVariableOp":
        return value
    if value.op.type not in _SUMS:
        return None
    for before, added in (value.op.inputs, value.op.inputs[::-1]):
        if before.op.type == "ReadVariableOp" and before.op.inputs[0].op is handle.op:
            return added if added.shape == before.shape else None
    return None
