"""Look-ups in a script's TensorFlow graph: names, variables and their initializers."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["initializers_of", "operator_names", "shape_and_type"]


def operator_names(script: tf.Graph) -> set[str]:
    """The names of all operators."""
    return {operation.name for operation in script.get_operations()}


def shape_and_type(script: tf.Graph, variable: str) -> tuple[tuple[int, ...], tf.DType]:
    """A variable's shape and the dtype of its values."""
    operation = script.get_operation_by_name(variable)
    shape = tf.TensorShape(operation.get_attr("shape"))
    return tuple(int(n) for n in shape), tf.as_dtype(operation.get_attr("dtype")).base_dtype


def initializers_of(script: tf.Graph) -> dict[str, str]:
    """The name of the initializer of each variable, by the variable's operator."""
    initializers: dict[str, str] = {}
    for collection in (
        tf.compat.v1.GraphKeys.GLOBAL_VARIABLES,
        tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
    ):
        for variable in script.get_collection(collection):
            handle = variable.handle if hasattr(variable, "handle") else variable.op.outputs[0]
            initializer = variable.initializer
            if initializer is not None:
                initializers[handle.op.name] = initializer.name
    return initializers
