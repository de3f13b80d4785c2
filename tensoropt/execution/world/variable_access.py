"""Operations that read, write and free a variable, given by its handle or reference."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["free", "read", "read_shards", "write"]


def read(variable: tf.Tensor) -> tf.Tensor:
    """Read a variable whose operator is known."""
    if variable.dtype != tf.resource:
        return tf.identity(variable)
    dtype = tf.as_dtype(variable.op.get_attr("dtype"))
    return tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)


def read_shards(shards: Sequence[tf.Tensor], dtype: tf.DType) -> list[tf.Tensor]:
    """Read variables of type ``dtype``, whatever operators give their handles or references."""
    return [
        tf.raw_ops.ReadVariableOp(resource=shard, dtype=dtype)
        if shard.dtype == tf.resource
        else tf.identity(shard)
        for shard in shards
    ]


def write(variable: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assign a value to a variable, also to one that was freed."""
    if variable.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=variable, value=value)
    return tf.raw_ops.Assign(ref=variable, value=value, validate_shape=False).op


def free(variable: tf.Tensor) -> tf.Operation:
    """Free the value of a variable; a reference then holds an empty tensor."""
    if variable.dtype == tf.resource:
        return tf.raw_ops.DestroyResourceOp(resource=variable)
    nothing = tf.zeros([0], variable.dtype.base_dtype)
    return tf.raw_ops.Assign(ref=variable, value=nothing, validate_shape=False).op
