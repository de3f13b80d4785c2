"""The shapes of a graph's tensors at the sizes of one run, where the graph leaves extents open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.graph.from_tensorflow.binding import bind_shapes
from tensoropt.graph.from_tensorflow.operations import output_spec
from tensoropt.graph.operator import Graph
from tensoropt.tensorflow_private import ops

__all__ = ["output_shapes"]


def output_shapes(
    script: tf.Graph, graph: Graph, roots: Sequence[str], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """By operator the shapes of its outputs, of the script's own that have any.

    Args:
        script: the script's graph.
        graph: imported from it for some roots.
        roots: names of these.
        shapes: of what is fed, see `bind_shapes`.
    """
    bound = bind_shapes(script, roots, shapes)
    try:
        found = {}
        for operator in graph:
            if operator.is_constant or not operator.outputs:
                continue
            try:
                operation = bound.get_operation_by_name(operator.name)
            except KeyError:
                continue  # the importer's own, of a variable
            found[operator.name] = tuple(output_spec(tensor).shape for tensor in operation.outputs)
        return found
    finally:
        ops.dismantle_graph(bound)
