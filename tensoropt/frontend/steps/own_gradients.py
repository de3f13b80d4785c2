"""Operators that have a gradient of their own, by ``tf.custom_gradient``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tensoropt.graph.from_tensorflow import OWN_GRADIENT
from tensoropt.tensorflow_private import ops

__all__ = ["has_own_gradient"]

_SAME_DERIVATIVE = frozenset({"tensorflow.python.ops.nn_impl"})
"""TensorFlow's modules whose gradients, `tf.nn.silu`'s, are what differentiating their operators
gives, and spare memory. They refer to tensors of the graph that they are called in."""


def has_own_gradient(node: Any) -> bool:
    """Whether a node's gradient is another than that of the operators before it.

    Args:
        node: an IdentityN of a GraphDef that was made in this process.
    """
    if OWN_GRADIENT not in node.attr:
        return False
    registered = ops.gradient_registry.lookup(node.attr[OWN_GRADIENT].s.decode())
    return _author(registered).__module__ not in _SAME_DERIVATIVE


def _author(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a script gave to ``tf.custom_gradient``, which wraps it."""
    for name in ("tape_grad_fn", "grad_fn"):
        if not inspect.isfunction(function):
            break
        captured = inspect.getclosurevars(function).nonlocals
        function = captured.get(name, function)
    return function
