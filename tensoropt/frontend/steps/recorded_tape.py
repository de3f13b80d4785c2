"""Records the gradients that a tape computes while a step is traced.

The tape's gradients stay in the traced graph, tagged as `recorded_gradients` tags those of
``tf.gradients``. Emission cuts the graph there and differentiates the rank's graph instead.
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
    """Gradients are computed inside a loop or conditional over tensors.

    Args:
        text: the message.
        in_condition: whether the innermost loop or conditional is a conditional.
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
            values = before(tape, target, sources, output_gradients, tf.UnconnectedGradients.NONE)
        ys, gradients = tf.nest.flatten(target), tf.nest.flatten(values)
        given = [None] * len(ys) if output_gradients is None else tf.nest.flatten(output_gradients)
        xs = tf.nest.flatten(sources)
        results = tagged(gradients, ys, [_read(graph, x) for x in xs], given, [], calls)
        calls += 1
        if tf.UnconnectedGradients(unconnected_gradients) == tf.UnconnectedGradients.ZERO:
            results = [
                tf.zeros_like(x) if result is None else result
                for result, x in zip(results, xs, strict=True)
            ]
        return tf.nest.pack_sequence_as(sources, results)

    tf.GradientTape.gradient = gradient
    try:
        yield
    finally:
        tf.GradientTape.gradient = before


def _refused(graph: tf.Graph) -> GradientInLoopError:
    """The error for gradients in the graph of a loop's body or a conditional's branch."""
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
    """Tag each gradient operator that a tape adds with the operator that it differentiates.

    Tensors that it reads of that operator are kept for the backward pass.
    """
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
    """The name of the differentiated operator, from the tensors that its gradient reads; empty if
    the gradient reads none."""
    for output in outputs or ():
        if isinstance(output, tf.Tensor):
            return str(output.op.name)
    for source in inputs or ():
        for reader in source.consumers() if isinstance(source, tf.Tensor) else []:
            pairs = zip(reader.inputs, inputs, strict=False)
            if reader.type == kind and all(given is None or given is read for read, given in pairs):
                return str(reader.name)
    return ""


def _read(graph: func_graph.FuncGraph, source: Any) -> Any:
    """The tensor of a source in the graph: a variable's captured handle, or the source itself."""
    return graph.capture(source.handle) if hasattr(source, "handle") else source
