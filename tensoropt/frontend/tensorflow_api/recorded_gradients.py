"""Recording of a script's gradients.

The script's call to ``tf.gradients`` adds operators to its graph. Each result then passes through
an Identity operator that records which tensors were differentiated, and by which. Emission cuts the
graph there and differentiates the rank's graph instead, so that gradients get collectives of their
own. Optimizers are unchanged: they look `gradients` up in the TensorFlow module where `install`
puts it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE
from tensoropt.tensorflow_private import copies_of_v1, gradients_impl, unrecorded_gradients
from tensoropt.tensorflow_private import gradients as gradients_module

__all__ = ["gradients", "install", "tagged"]

_COUNTER = "_tensoropt_gradient_calls"


def install() -> None:
    """Put `gradients` in the places where scripts and optimizers look TensorFlow's up."""
    gradients_module.gradients = gradients
    gradients_impl.gradients = gradients
    for module in copies_of_v1():
        module.gradients = gradients


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> list[Any]:
    """Record and return gradients: the arguments and results of `tf.compat.v1.gradients`."""
    results = unrecorded_gradients(
        ys,
        xs,
        grad_ys,
        name,
        colocate_gradients_with_ops,
        gate_gradients,
        aggregation_method,
        stop_gradients,
    )
    if tf.executing_eagerly():
        return _with_zeros(results, xs, unconnected_gradients)
    graph = tf.compat.v1.get_default_graph()
    if isinstance(graph, tf.__internal__.FuncGraph):  # inside a loop or function body
        return _with_zeros(results, xs, unconnected_gradients)
    call = getattr(graph, _COUNTER, 0)
    setattr(graph, _COUNTER, call + 1)
    y_list = _as_list(ys)
    given = _as_list(grad_ys) if grad_ys is not None else [None] * len(y_list)
    stopped = _as_list(stop_gradients) if stop_gradients else []
    recorded = tagged(results, y_list, _as_list(xs), given, stopped, call, name)
    return _with_zeros(recorded, xs, unconnected_gradients)


def tagged(
    results: Sequence[Any],
    ys: Sequence[Any],
    xs: Sequence[Any],
    grad_ys: Sequence[Any],
    stop_gradients: Sequence[Any],
    call: int,
    name: str = "gradients",
) -> list[Any]:
    """Gradients in the default graph, each with the record of its derivation.

    Args:
        results: TensorFlow's gradients; None stays None.
        ys, grad_ys, stop_gradients: arguments of ``tf.gradients``; None in ``grad_ys`` for ones.
        xs: one for each result.
        call: number of the call in the graph.
        name: name of the scope.
    """
    graph = tf.compat.v1.get_default_graph()
    record = {
        "call": call,
        "ys": [_name(y) for y in ys],
        "grad_ys": [None if g is None else _name(g) for g in grad_ys],
        "stop_gradients": [_name(t) for t in stop_gradients],
        "after": sorted(op.name for op in graph._current_control_dependencies()),
    }
    with tf.name_scope(name + "/recorded"):
        return [
            _tag(gradient, {**record, "x": _name(x)})
            for gradient, x in zip(results, xs, strict=True)
        ]


def _with_zeros(results: Sequence[Any], xs: Any, unconnected_gradients: Any) -> list[Any]:
    """Replace None by zeros if the script asks for it; the zeros are not recorded as gradients."""
    if tf.UnconnectedGradients(unconnected_gradients) != tf.UnconnectedGradients.ZERO:
        return list(results)
    return [
        tf.zeros_like(x) if gradient is None else gradient
        for gradient, x in zip(results, _as_list(xs), strict=True)
    ]


def _as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _name(value: Any) -> str:
    """The name of the tensor that TensorFlow differentiates for a value; a variable's handle."""
    if hasattr(value, "handle"):
        return str(value.handle.name)
    if isinstance(value, tf.IndexedSlices):
        value = value.values
    if not isinstance(value, tf.Tensor):
        value = tf.convert_to_tensor(value)
    return str(value.name)


def _tag(gradient: Any, record: dict[str, Any]) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            _identity(gradient.values, {**record, "part": "values"}),
            _identity(gradient.indices, {**record, "part": "indices"}),
            gradient.dense_shape,
        )
    return _identity(gradient, {**record, "part": "dense"})


def _identity(tensor: tf.Tensor, record: dict[str, Any]) -> tf.Tensor:
    tagged = tf.identity(tensor, name="gradient")
    text = json.dumps(record, sort_keys=True).encode()
    tagged.op._set_attr(GRADIENT_ATTRIBUTE, tf.compat.v1.AttrValue(s=text))
    return tagged
