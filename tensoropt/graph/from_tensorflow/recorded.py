"""Recorded gradients: their marker in a script's graph, and the operator that replaces one."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tensorflow as tf

from tensoropt.graph.from_tensorflow.operations import output_spec
from tensoropt.graph.operator import GRADIENT, GradientTag, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

__all__ = ["GRADIENT_ATTRIBUTE", "gradient_operator", "gradient_tag", "needed_by_gradient"]

GRADIENT_ATTRIBUTE = "_tensoropt_gradient"
"""Attribute of the Identity operators that mark a script's gradients. Its value is JSON."""


def gradient_tag(operation: tf.Operation) -> GradientTag | None:
    """Return the record of the gradient that an operation marks, None if it marks none."""
    if operation.type != "Identity" or GRADIENT_ATTRIBUTE not in operation.node_def.attr:
        return None
    text = json.loads(operation.get_attr(GRADIENT_ATTRIBUTE).decode())
    return GradientTag(
        call=text["call"],
        part=text["part"],
        ys=tuple(TensorName.parse(name) for name in text["ys"]),
        x=TensorName.parse(text["x"]),
        grad_ys=tuple(TensorName.parse(name) if name else None for name in text["grad_ys"]),
        stop_gradients=tuple(TensorName.parse(name) for name in text["stop_gradients"]),
        after=tuple(text["after"]),
    )


def needed_by_gradient(tag: GradientTag) -> list[str]:
    """Return the names of the operators that a recorded gradient depends on."""
    names = [*tag.ys, tag.x, *(g for g in tag.grad_ys if g), *tag.stop_gradients]
    return [name.operator for name in names] + list(tag.after)


def gradient_operator(
    operation: tf.Operation, tag: GradientTag, operators: Mapping[str, Operator]
) -> Operator:
    """Return the `GRADIENT` operator that replaces TensorFlow's operations of a recorded gradient.

    Args:
        operation: the Identity that marks the gradient.
        tag: its record.
        operators: the operators imported so far, among them those that are differentiated.
    """
    inputs = (*tag.ys, *(g for g in tag.grad_ys if g is not None))
    spec = output_spec(operation.outputs[0])
    if tag.part == "dense":
        shape = operators[tag.x.operator].outputs[tag.x.index].shape
        spec = TensorSpec(shape, spec.dtype)
    return Operator(
        name=operation.name,
        type=GRADIENT,
        inputs=inputs,
        input_specs=tuple(operators[n.operator].outputs[n.index] for n in inputs),
        outputs=(spec,),
        attributes={
            "x": str(tag.x),
            "part": tag.part,
            "call": tag.call,
            "grad_ys": tuple(map(str, tag.grad_ys)),
            "stop_gradients": tuple(map(str, tag.stop_gradients)),
        },
        control_inputs=tag.after,
        gradient=tag,
    )
