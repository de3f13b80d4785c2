"""Operators with a gradient of their own, made by ``tf.custom_gradient``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradient_functions.own_gradients import PASSED_TO_GRADIENT, gradient_reads
from tensoropt.graph.from_tensorflow import OWN_GRADIENT
from tensoropt.tensorflow_private import ops

__all__ = ["has_own_gradient", "pass_to_gradients"]

_SAME_DERIVATIVE = frozenset({"tensorflow.python.ops.nn_impl"})
"""TensorFlow's modules whose custom gradients (`tf.nn.silu`'s) equal the derivative of their
operators and only save memory. They refer to tensors of the graph that they are called in."""


def has_own_gradient(node: Any) -> bool:
    """Whether a node's gradient differs from the gradient of the operators before it.

    Args:
        node: an IdentityN of a GraphDef that was made in this process.
    """
    if OWN_GRADIENT not in node.attr:
        return False
    registered = ops.gradient_registry.lookup(node.attr[OWN_GRADIENT].s.decode())
    return _author(registered).__module__ not in _SAME_DERIVATIVE


def pass_to_gradients(definition: Any, traced: tf.Graph) -> dict[str, list[int]]:
    """Give each operator with a gradient of its own the tensors that its gradient reads.

    A rank computes most of these tensors again. The rest (random numbers, values of variables,
    results of loops and conditionals) become further inputs of the operator, see
    `PASSED_TO_GRADIENT`.

    Args:
        definition: the GraphDef of a step, changed in place.
        traced: the step's graph.

    Returns:
        For each operator, the numbers of the inputs that its gradient differentiates by.
    """
    differentiated: dict[str, list[int]] = {}
    for node in definition.node:
        if node.op != "IdentityN" or not has_own_gradient(node):
            continue
        operation = traced.get_operation_by_name(node.name)
        passed, by = gradient_reads(operation)
        inputs = list(node.input)
        data = len(operation.inputs)
        node.input[:] = [*inputs[:data], *(variable.name for variable in passed), *inputs[data:]]
        node.attr["T"].list.type.extend(variable.dtype.as_datatype_enum for variable in passed)
        node.attr[PASSED_TO_GRADIENT].i = len(passed)
        names = {tensor.name for tensor in by}
        differentiated[node.name] = [
            number for number, tensor in enumerate(operation.inputs) if tensor.name in names
        ]
    return differentiated


def _author(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient function that a script defined inside its ``tf.custom_gradient``."""
    for name in ("tape_grad_fn", "grad_fn"):
        if not inspect.isfunction(function):
            break
        captured = inspect.getclosurevars(function).nonlocals
        function = captured.get(name, function)
    return function
