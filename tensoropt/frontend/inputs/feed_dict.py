"""The values of a feed_dict, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import FeedError
from tensoropt.execution.world.shares import Share
from tensoropt.graph.from_tensorflow import fed_operator
from tensoropt.tensorflow_private import nest
from tensoropt.tensorflow_private import session as session_module

__all__ = ["Fed"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Fed:
    """The values of a feed_dict.

    Attributes:
        values: the values by `fed_operator`, converted to the tensors' types; a share stays one.
        by_reference: the same values by tensor reference.
    """

    values: dict[str, Any]
    by_reference: dict[Any, Any]

    @classmethod
    def of(cls, graph: tf.Graph, feed_dict: Mapping[Any, Any] | None) -> Fed:
        """Read a feed_dict: placeholders and any other tensors, by themselves or by name.

        Raises:
            FeedError: if a key is not in the graph, or a value does not fit its tensor.
        """
        fed = cls({}, {})
        for key, value in _flat(feed_dict or {}):
            for part, part_value in _parts(key, value):
                tensor = _tensor(graph, part)
                array = _value(tensor, part_value)
                fed.values[fed_operator(tensor)] = array
                fed.by_reference[tensor.ref()] = array
        return fed


def _flat(feed_dict: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(nest.flatten_dict_items(feed_dict).items())
    except (TypeError, ValueError) as error:
        raise FeedError(
            f"a feed_dict maps tensors to values. Got {feed_dict!r}: {error}"
        ) from error


def _parts(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """The parts of a fed value: those of a sparse tensor, or the value itself."""
    for kind, _, feed, _ in session_module._REGISTERED_EXPANSIONS:
        if isinstance(key, kind):
            return list(feed(key, value))
    return [(key, value)]


def _tensor(graph: tf.Graph, key: Any) -> tf.Tensor:
    try:
        element = graph.as_graph_element(key, allow_tensor=True, allow_operation=True)
    except (KeyError, TypeError, ValueError) as error:
        raise FeedError(
            f"a fed tensor is in the script's graph. Got {key!r}: {error.args[0]} Feed the tensor "
            "that the script made, or its name, 'operator:0'."
        ) from None
    if isinstance(element, tf.Operation):
        if len(element.outputs) != 1:
            raise FeedError(
                f"a tensor is fed. Got the operator {element.name!r}, which has "
                f"{len(element.outputs)} outputs; feed one of them."
            )
        element = element.outputs[0]
    if not graph.is_feedable(element) or element.dtype in (tf.resource, tf.variant):
        raise FeedError(
            f"a fed tensor is feedable. Got {element.name!r}, which is a handle or is protected by "
            "the graph; feed a tensor that is computed from it."
        )
    return element


def _value(tensor: tf.Tensor, value: Any) -> Array | Share:
    if isinstance(value, Share):
        share = Share(value.rows, _array(tensor, value.value), value.size)
        _check_shape(tensor, share.shape)
        return share
    if isinstance(value, tf.Tensor):
        raise FeedError(
            f"a fed value is known: a number, list or array. Got the tensor {value.name!r} for "
            f"{tensor.name!r}; run it first."
        )
    array = _array(tensor, value)
    _check_shape(tensor, array.shape)
    return array


def _array(tensor: tf.Tensor, value: Any) -> Array:
    dtype = tensor.dtype.as_numpy_dtype
    try:
        array = np.asarray(value, dtype=dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise FeedError(
            f"a fed value converts to its placeholder's type. Got {type(value).__name__} for "
            f"{tensor.op.name!r} ({tensor.dtype.name}): {error}. Convert it first."
        ) from None
    if isinstance(value, int) and not isinstance(value, bool) and array.item() != value:
        raise FeedError(
            f"a fed value converts to its placeholder's type. Got {value} for {tensor.op.name!r} "
            f"({tensor.dtype.name}), which does not hold it."
        )
    return array


def _check_shape(tensor: tf.Tensor, shape: tuple[int, ...]) -> None:
    if not tensor.shape.is_compatible_with(shape):
        raise FeedError(
            f"a fed value has its placeholder's shape. Got {list(shape)} for "
            f"{tensor.op.name!r}, declared as {tensor.shape.as_list()}; feed the whole global "
            "batch in that shape, or declare the dimension as None."
        )
