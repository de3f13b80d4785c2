"""Recording of what a gradient tape differentiates while a step is traced.

A tape's own gradients stay in the traced graph, tagged as `recorded_gradients` tags those of
``tf.gradients``: emission cuts there and differentiates the rank's graph instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.frontend.tensorflow_api.recorded_gradients import tagged
from tensoropt.tensorflow_private import func_graph

__all__ = ["recorded_tape"]


@contextmanager
def recorded_tape(graph: func_graph.FuncGraph) -> Iterator[None]:
    """Record the calls of ``GradientTape.gradient`` in a function's graph.

    Raises:
        GraphError: from a call inside a loop's or conditional's body.
    """
    before = tf.GradientTape.gradient
    calls = 0

    def gradient(
        tape: Any,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        nonlocal calls
        here = tf.compat.v1.get_default_graph()
        if here is not graph:
            raise GraphError(
                "a step asks for gradients outside of loops and conditionals of tensors. Got "
                f"GradientTape.gradient in the body of {here.name!r}; unroll the loop, or put the "
                "tape around it."
            )
        found = before(tape, target, sources, output_gradients, tf.UnconnectedGradients.NONE)
        ys, gradients = tf.nest.flatten(target), tf.nest.flatten(found)
        given = [None] * len(ys) if output_gradients is None else tf.nest.flatten(output_gradients)
        xs = tf.nest.flatten(sources)
        results = tagged(gradients, ys, [_read(graph, x) for x in xs], given, [], calls)
        calls += 1
        if tf.UnconnectedGradients(unconnected_gradients) == tf.UnconnectedGradients.ZERO:
            results = [
                tf.zeros_like(x) if each is None else each
                for each, x in zip(results, xs, strict=True)
            ]
        return tf.nest.pack_sequence_as(sources, results)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = before


def _read(graph: func_graph.FuncGraph, source: Any) -> Any:
    """What stands for a source in the graph: of a variable its captured handle."""
    return graph.capture(source.handle) if hasattr(source, "handle") else source
