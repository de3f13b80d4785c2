"""The shapes of a graph's tensors in one run, for a graph with open extents."""

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
    """Return the shapes of the outputs of the script's operators, by operator name.

    Args:
        script: the script's graph.
        graph: the graph that was imported from it for some roots.
        roots: names of the roots.
        shapes: shapes of fed tensors in the run, see `bind_shapes`.
    """
    bound = bind_shapes(script, roots, shapes)
    try:
        shapes_of = {}
        for operator in graph:
            if operator.is_constant or not operator.outputs:
                continue
            try:
                operation = bound.get_operation_by_name(operator.name)
            except KeyError:
                continue  # the importer added it
            specs = map(output_spec, operation.outputs)
            shapes_of[operator.name] = tuple(spec.shape for spec in specs)
        return shapes_of
    finally:
        ops.dismantle_graph(bound)
