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
from tensoropt.graph.from_tensorflow import GRADIENT_OF
from tensoropt.tensorflow_private import backprop, control_flow_v2_func_graphs, func_graph

__all__ = ["GradientInLoopError", "recorded_tape"]


class GradientInLoopError(GraphError):
    """Gradients are asked for inside of a loop or conditional over tensors.

    Args:
        text: the message.
        in_condition: whether the innermost of them is a conditional.
    """

    def __init__(self, text: str, in_condition: bool = False) -> None:
        super().__init__(text)
        self.in_condition = in_condition


@contextmanager
def recorded_tape(graph: func_graph.FuncGraph) -> Iterator[None]:
    """Record the calls of ``GradientTape.gradient`` in a function's graph.

    Raises:
        GradientInLoopError: from a call inside a loop's or conditional's body.
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
            raise _refused(here)
        with _noted_owners(graph):
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


def _refused(graph: tf.Graph) -> GradientInLoopError:
    """The error for gradients in the graph of a loop's body or of a conditional's branch."""
    in_condition = isinstance(graph, control_flow_v2_func_graphs.CondBranchFuncGraph)
    if in_condition:
        got = f"a branch, {graph.name!r}"
        remedy = (
            "compute the loss with the condition inside the tape, and ask for the gradients after "
            "it, or put the condition on the gradients, as by tf.where."
        )
    else:
        got, remedy = f"the body of {graph.name!r}", "unroll the loop, or put the tape around it."
    return GradientInLoopError(
        "a step asks for gradients outside of loops and conditionals of tensors. Got "
        f"GradientTape.gradient in {got}; {remedy}",
        in_condition,
    )


@contextmanager
def _noted_owners(graph: func_graph.FuncGraph) -> Iterator[None]:
    """Let a tape note of what it adds to a graph, which operator's gradient that computes: what it
    reads of the operator is kept for it."""
    compute = backprop._gradient_function

    def noted(kind: str, attributes: Any, count: int, inputs: Any, outputs: Any, *more: Any) -> Any:
        owner = _differentiated(kind, inputs, outputs)
        attribute = tf.compat.v1.AttrValue(s=owner.encode())
        with graph._attr_scope({GRADIENT_OF: attribute} if owner else {}):
            return compute(kind, attributes, count, inputs, outputs, *more)

    backprop.pywrap_tfe.TFE_Py_RegisterGradientFunction(noted)
    try:
        yield
    finally:
        backprop.pywrap_tfe.TFE_Py_RegisterGradientFunction(compute)


def _differentiated(kind: str, inputs: Any, outputs: Any) -> str:
    """The name of an operator, by what its gradient reads; empty where it reads nothing."""
    for made in outputs or ():
        if isinstance(made, tf.Tensor):
            return str(made.op.name)
    for read in inputs or ():
        for use in read.consumers() if isinstance(read, tf.Tensor) else []:
            pairs = zip(use.inputs, inputs, strict=False)
            if use.type == kind and all(given is None or given is own for own, given in pairs):
                return str(use.name)
    return ""


def _read(graph: func_graph.FuncGraph, source: Any) -> Any:
    """What stands for a source in the graph: of a variable its captured handle."""
    return graph.capture(source.handle) if hasattr(source, "handle") else source
