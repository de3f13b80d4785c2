"""Fold operators whose value follows from constants and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.graph.from_tensorflow.operations import control_inputs
from tensoropt.graph.from_tensorflow.recorded import gradient_tag
from tensoropt.tdl import types_with
from tensoropt.tensorflow_private import smart_cond

__all__ = ["INITIALISED_TYPES", "Folding"]

INITIALISED_TYPES = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})
"""Types that return whether a variable is initialised."""

_FOLDED_ELEMENTS = 1 << 16
"""Largest number of elements of a folded value."""
_SHAPE_TYPES = types_with(role="reads shapes")


class Folding:
    """Folds operations of a graph with bound shapes into constants. Each is examined once.

    Args:
        unset: variables that have no value yet. If it is given, whether a variable is initialised
            is a constant.
    """

    def __init__(self, unset: frozenset[str] | None) -> None:
        self._unset = unset
        self._foldable: dict[str, bool] = {}
        self._folded: dict[str, Any] = {}

    def value(self, operation: tf.Operation) -> Any:
        """Return the value of the operation's only output, None if it is not folded."""
        if self._unset is not None and operation.type in INITIALISED_TYPES:
            return np.array(operation.inputs[0].op.name not in self._unset)
        if not self._is_foldable(operation):
            return None
        if operation.name not in self._folded:
            tensor = operation.outputs[0]
            value = smart_cond.smart_constant_value(tensor)
            if value is not None:
                value = np.asarray(value, dtype=tensor.dtype.as_numpy_dtype)
            self._folded[operation.name] = value
        return self._folded[operation.name]

    def waits(self, operation: tf.Operation) -> list[tf.Operation]:
        """Return the control inputs of the constants that an operation is folded from.

        TensorFlow omits a control input that an input has already: in ``assign_add(step, 1)`` after
        an update, only the constant 1 waits for the update.
        """
        controls: dict[str, tf.Operation] = {}
        stack, visited = [operation], {operation.name}
        while stack:
            current = stack.pop()
            controls.update({control.name: control for control in control_inputs(current)})
            inputs = [] if current.type in _SHAPE_TYPES else [t.op for t in current.inputs]
            stack += [op for op in inputs if op.name not in visited]
            visited.update(op.name for op in inputs)
        return list(controls.values())

    def _is_foldable(self, operation: tf.Operation) -> bool:
        stack = [operation]
        while stack:
            current = stack[-1]
            if current.name in self._foldable:
                stack.pop()
                continue
            verdict = _foldable_alone(current)
            if verdict is None:
                unknown = [t.op for t in current.inputs if t.op.name not in self._foldable]
                if unknown:
                    stack.extend(unknown)
                    continue
                verdict = all(self._foldable[t.op.name] for t in current.inputs)
            self._foldable[current.name] = verdict
            stack.pop()
        return self._foldable[operation.name]


def _foldable_alone(operation: tf.Operation) -> bool | None:
    """Whether an operation can be folded. None if that depends on its inputs."""
    if operation.type == "Const":  # The bytes of an array of text are addresses, not its value.
        return operation.outputs[0].dtype not in (tf.string, tf.resource, tf.variant)
    # Values of shapes need not wait (see `Folding.waits`).
    has_controls = operation.control_inputs and operation.type not in _SHAPE_TYPES
    if len(operation.outputs) != 1 or has_controls:
        return False
    tensor = operation.outputs[0]
    elements = tensor.shape.num_elements()
    if elements is None or elements > _FOLDED_ELEMENTS or not _is_numeric(tensor.dtype):
        return False
    if operation.type in _SHAPE_TYPES:
        shape = operation.inputs[0].shape
        return bool(
            shape.rank is not None if operation.type == "Rank" else shape.is_fully_defined()
        )
    if operation.op_def.is_stateful or not operation.inputs or gradient_tag(operation) is not None:
        return False
    return None


def _is_numeric(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool) and not dtype._is_ref_dtype
