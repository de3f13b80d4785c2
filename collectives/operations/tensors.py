"""`collectives.operations.operation.Elements` of TensorFlow tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["extent", "itself", "ones_like", "padded", "part", "reshaped", "selected", "zeros_like"]

itself = tf.identity

_COLLECTION = "_collectives_shared_constants"


def zeros_like(x: tf.Tensor) -> tf.Tensor:
    """Return zeros by an operator that reads the tensor.

    TensorFlow's own function may make a constant instead. With the operator, the dependencies in
    the graph are the same on all members."""
    return tf.raw_ops.ZerosLike(x=x)


def ones_like(x: tf.Tensor) -> tf.Tensor:
    """Return ones by an operator that reads the tensor, as `zeros_like` does."""
    return tf.raw_ops.OnesLike(x=x)


def extent(x: tf.Tensor, dim: int) -> Any:
    """The size of a dimension; a scalar tensor if the size is known only at run time."""
    known = x.shape.as_list()[dim]
    return tf.shape(x)[dim] if known is None else known


def part(x: tf.Tensor, dim: int, elements: slice) -> tf.Tensor:
    """The elements of a slice along a dimension; the tensor itself if the slice covers all."""
    begin, size = [0] * x.shape.rank, [-1] * x.shape.rank  # -1: all
    begin[dim], size[dim] = elements.start, elements.stop - elements.start
    if x.shape.as_list()[dim] is None:  # the bounds are known only at run time
        found = tf.slice(x, tf.stack(begin), tf.stack(size))
        kept = x.shape.as_list()
        found.set_shape([*kept[:dim], None, *kept[dim + 1 :]])
        return found
    if elements == slice(0, x.shape.as_list()[dim]):
        return x
    return tf.slice(x, _shared_constant(begin), _shared_constant(size))


def selected(x: tf.Tensor, dim: int, ranges: Sequence[tuple[int, int]]) -> tf.Tensor:
    """The elements of ranges along a dimension, by one operator that reads the tensor."""
    if len(ranges) > 1:
        places = np.concatenate([np.arange(*each, dtype=np.int32) for each in ranges])
        return tf.gather(x, tf.constant(places), axis=dim)
    found = part(x, dim, slice(*ranges[0]))
    return itself(x) if found is x else found


def padded(x: tf.Tensor, dim: int, before: int, size: int, fill: float = 0) -> tf.Tensor:
    """The tensor with ``before`` elements put before it, and as many after it as make ``size``."""
    after = size - before - x.shape.as_list()[dim]
    if not before and not after:
        return x
    paddings = [[0, 0]] * x.shape.rank
    paddings[dim] = [before, after]
    return tf.pad(x, paddings, constant_values=tf.constant(fill, x.dtype))


def reshaped(x: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """The same elements in another shape; the tensor itself if it has that shape."""
    return x if x.shape == shape else tf.reshape(x, _shared_constant(shape))


def _shared_constant(value: Sequence[int]) -> tf.Tensor:
    """An int32 constant in the default graph, the same tensor for the same value.

    The constant has no control dependencies. Many ranks in one graph need the same few offsets and
    shapes; separate constants would be a third of the graph.
    """
    graph = tf.compat.v1.get_default_graph()
    found = graph.get_collection_ref(_COLLECTION)
    if not found:
        found.append({})
    key = tuple(value)
    if key not in found[0]:
        with graph.control_dependencies(None), graph.name_scope(None):
            found[0][key] = tf.constant(value, tf.int32)
    return found[0][key]
