"""Gradient functions of an emitted graph, kept only while it is differentiated."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import ops

__all__ = ["forgotten_afterwards", "overridden", "registered_gradient"]

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
    """TensorFlow's gradient function of a type of operator.

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
