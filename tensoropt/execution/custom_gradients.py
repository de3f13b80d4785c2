"""Gradient functions of an emitted graph, kept only while it is differentiated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import ops  # the registry of gradients has no public name

__all__ = ["forgotten_afterwards"]


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
