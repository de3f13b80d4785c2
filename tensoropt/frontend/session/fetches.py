"""The names of the tensors and operators that a script fetches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import FetchError
from tensoropt.frontend.inputs.feed_dict import Fed
from tensoropt.tensorflow_private import session as session_module

__all__ = ["Fetched", "fetched_operators"]


class Fetched:
    """The tensors and operators of a structure of fetches.

    Structures are TensorFlow's own: lists, tuples, named tuples, dictionaries, sparse tensors,
    `IndexedSlices`, variables, and names. `build` makes the same structure of values.

    Raises:
        FetchError: if a fetch is not in the graph, or has no value to return.
    """

    def __init__(self, graph: tf.Graph, fetches: Any, fed: Fed) -> None:
        try:
            self._handler = session_module._FetchHandler(graph, fetches, fed.by_reference)
        except (KeyError, TypeError, ValueError) as error:
            raise FetchError(
                "a fetch is a tensor, operator or variable of the script's graph, or its name. "
                f"Got {fetches!r}: {error} Tensors are named 'operator:0', operators 'operator'."
            ) from None  # TensorFlow's own errors say no more than that
        tensors = [_value_of(graph, tensor) for tensor in self._handler.fetches()]
        for tensor in tensors:
            if tensor.dtype in (tf.resource, tf.variant):
                raise FetchError(
                    f"a fetched tensor has a value. Got {tensor.name!r}, which is a handle; fetch "
                    "the variable, or a tensor that reads it."
                )
        self.tensors = [str(tensor.name) for tensor in tensors]
        self.operations = list(dict.fromkeys(str(op.name) for op in self._handler.targets()))

    def build(self, session: Any, values: Mapping[str, Any]) -> Any:
        """The fetched structure, with the tensors' values, and None for each operator."""
        return self._handler.build_results(session, [values[name] for name in self.tensors])


def fetched_operators(tensors: Sequence[str], operations: Sequence[str]) -> list[str]:
    """The names of fetched operators, and of the operators of fetched tensors, each once."""
    return list(dict.fromkeys([*(name.partition(":")[0] for name in tensors), *operations]))


def _value_of(graph: tf.Graph, tensor: tf.Tensor) -> tf.Tensor:
    """The value of a variable, if the tensor is its handle; else the tensor."""
    if tensor.dtype == tf.resource and tensor.op.type == "VarHandleOp":
        for key in (
            tf.compat.v1.GraphKeys.GLOBAL_VARIABLES,
            tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
        ):
            for variable in graph.get_collection(key):
                if getattr(variable, "handle", None) is tensor:
                    return variable._graph_element
    return tensor
