"""A batch to measure steps with: the caller's, or a generated one.

The time of a step depends on the shapes of its inputs, hardly on their values. The values only have
to be valid: a row number lies in its table, a label is one of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.frontend.inputs.feed_dict import Fed
from tensoropt.graph.from_tensorflow import FED_OUTPUT
from tensoropt.tdl import operator_type

__all__ = ["fed_batch", "fed_batch_shapes", "sample_batch"]

Array = np.ndarray[Any, Any]

_SEED = 0


def fed_batch(
    script: tf.Graph, feed_dict: Mapping[Any, Any], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Array]:
    """The inputs of a step, by `fed_operator`: values of a feed_dict, and generated ones.

    Args:
        script: the script's graph.
        feed_dict: the global batch.
        shapes: shapes of the step's inputs, by `fed_operator`.

    Raises:
        FeedError: if a key is not in the graph, or a value does not fit its tensor.
        OptionError: if a value has another shape than the step is planned for.
    """
    given = Fed.of(script, feed_dict).values
    for name, value in given.items():
        planned = tuple(shapes.get(name, value.shape))
        if value.shape != planned:
            raise OptionError(
                "steps are measured with a batch of the shapes that the strategy is for. Got "
                f"{list(value.shape)} for {name!r} in feed_dict, but {list(planned)} by "
                "batch_size or shapes; pass a batch of that size, or leave them out."
            )
    missing = {name: shape for name, shape in shapes.items() if name not in given}
    return sample_batch(script, missing) | {n: v for n, v in given.items() if n in shapes}


def fed_batch_shapes(script: tf.Graph, feed_dict: Mapping[Any, Any]) -> dict[str, tuple[int, ...]]:
    """Shape of each value of a feed_dict, by `fed_operator`.

    Raises:
        FeedError: if a key is not in the graph, or a value does not fit its tensor.
    """
    return {name: value.shape for name, value in Fed.of(script, feed_dict).values.items()}


def sample_batch(script: tf.Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Values of these shapes, the same at every call.

    Numbers are between 0 and 1, row numbers and labels are valid, strings are empty.

    Args:
        script: the script's graph.
        shapes: the shapes, by `fed_operator`.
    """
    random = np.random.default_rng(_SEED)
    return {
        name: _values(_tensor(script, name), tuple(shape), random)
        for name, shape in sorted(shapes.items())
    }


def _tensor(script: tf.Graph, name: str) -> tf.Tensor:
    output = FED_OUTPUT.fullmatch(name)
    if output is None:
        return script.get_operation_by_name(name).outputs[0]
    return script.get_operation_by_name(output["operator"]).outputs[int(output["index"])]


def _values(tensor: tf.Tensor, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    dtype = tensor.dtype.base_dtype
    if dtype == tf.string:
        return np.full(shape, b"", object)
    kind = dtype.as_numpy_dtype
    if dtype == tf.bool:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.is_integer:
        bound = max(1, min(_bound(tensor), dtype.max))
        return np.asarray(random.integers(0, bound, shape)).astype(kind)
    return np.asarray(random.random(shape)).astype(kind)


def _bound(tensor: tf.Tensor) -> int:
    """Exclusive upper bound of an integer tensor's values, from its readers; by default 2."""
    bounds = []
    waiting, seen = [tensor], {tensor.ref()}
    while waiting:
        value = waiting.pop()
        for user in value.consumers():
            bound = _bound_of_use(user, value)
            if bound is not None:
                bounds.append(bound)
            if operator_type(user.type).value is not None:
                fresh = [out for out in user.outputs if out.ref() not in seen]
                seen.update(out.ref() for out in fresh)
                waiting += [out for out in fresh if out.dtype.is_integer]
    return min(bounds, default=2)


def _bound_of_use(user: tf.Operation, value: tf.Tensor) -> int | None:
    """Exclusive upper bound that an operator sets for the values of one of its inputs."""
    place = next(n for n, tensor in enumerate(user.inputs) if tensor is value)
    extent: Any = None
    if user.type == "GatherV2" and place == 1:
        axis = tf.get_static_value(user.inputs[2])
        dims = user.inputs[0].shape
        extent = dims[int(axis)] if axis is not None and dims.rank is not None else None
    elif user.type == "Gather" and place == 1:
        extent = user.inputs[0].shape[0]
    elif user.type == "ResourceGather" and place == 1:
        table = user.inputs[0].op
        if table.type == "VarHandleOp":
            extent = tf.TensorShape(table.get_attr("shape"))[0]
    elif user.type == "OneHot" and place == 0:
        extent = tf.get_static_value(user.inputs[1])
    elif user.type == "SparseSoftmaxCrossEntropyWithLogits" and place == 1:
        extent = user.inputs[0].shape[-1] if user.inputs[0].shape.rank else None
    elif user.type.startswith("UnsortedSegment") and place == 1:
        extent = tf.get_static_value(user.inputs[2])
    extent = getattr(extent, "value", extent)  # TensorFlow 1's shapes have Dimension objects
    return None if extent is None else int(extent)
