"""Small constants that operators of an emitted graph share.

Resharding for many ranks in one graph asks for the same few axes, offsets and shapes thousands of
times; each constant of its own would be a third of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["shared_constant"]

_COLLECTION = "_tensoropt_shared_constants"


def shared_constant(value: int | Sequence[int]) -> tf.Tensor:
    """An int32 constant in the default graph, the same tensor for the same value.

    It waits for nothing, whatever control dependencies are in force.
    """
    graph = tf.compat.v1.get_default_graph()
    found = graph.get_collection_ref(_COLLECTION)
    if not found:
        found.append({})
    key = value if isinstance(value, int) else tuple(value)
    if key not in found[0]:
        with graph.control_dependencies(None), graph.name_scope(None):
            found[0][key] = tf.constant(value, tf.int32)
    return found[0][key]
