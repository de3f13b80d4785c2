"""Gradient functions of an emitted graph, kept only while it is differentiated."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import ops

__all__ = ["differentiated_as", "forgotten_afterwards", "overridden", "registered_gradient"]

_numbers = itertools.count()


@contextlib.contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Drop the gradient functions that are made meanwhile, and so the graphs that they hold.

    TensorFlow keeps every one of `tf.custom_gradient` for good, 50 MB of a middling program; once
    a program's gradients are emitted nobody asks for them.
    """
    registry = ops.gradient_registry._registry
    before = set(registry)
    try:
        yield
    finally:
        for name in set(registry) - before:
            del registry[name]


def registered_gradient(kind: str) -> Callable[..., Any]:
    """TensorFlow's gradient function of a type of operator, or of that name.

    Raises:
        LookupError: if it has none.
    """
    found: Callable[..., Any] = ops.gradient_registry.lookup(kind)
    return found


@contextlib.contextmanager
def overridden(graph: tf.Graph, kind: str, function: Callable[..., Any]) -> Iterator[None]:
    """Give the operations of a type that are created meanwhile a gradient function of their own.

    Args:
        graph: that they are created in.
        kind: their type.
        function: called with the operation and the gradients by its outputs.
    """
    name = f"TensorOptGradient{next(_numbers)}"
    tf.RegisterGradient(name)(function)
    with graph.gradient_override_map({kind: name}):
        yield


def differentiated_as(
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    gradient: Callable[..., list[Any]],
) -> list[tf.Tensor]:
    """Tensors as a function of others that has a gradient function of its own.

    One operation, where `tf.custom_gradient` makes one more for each tensor.

    Args:
        outputs: made of the inputs; or the inputs themselves.
        inputs: all in one graph.
        gradient: from the gradients by the outputs, zeros of those that nobody reads, to those by
            the inputs.
    """
    same = all(made is given for made, given in zip(outputs, inputs, strict=False))
    others = [] if same and len(outputs) == len(inputs) else list(inputs)
    count = len(outputs)

    def function(_: tf.Operation, *upstream: Any) -> list[Any]:
        found = gradient(*upstream[:count])
        return [None] * count + found if others else found

    with overridden(inputs[0].graph, "IdentityN", function):
        return list(tf.identity_n([*outputs, *others])[:count])
