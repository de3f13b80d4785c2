"""First values of Keras's variables that are computed when something asks for them.

A model that fits only split must not be whole on each rank at its start, and neither must the slots
of its optimizer. So a large variable that Keras makes on one of several ranks gets its value later:
a step's graph takes the values of a few variables at a time, and keeps shards of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.frontend.steps.variable_values import defer

__all__ = ["install", "remove"]

_LEAST_BYTES = 1 << 20  # smaller values are computed at once
_METHOD = "_initialize_with_initializer"  # of Keras 3's class of variables

# The state of the process, as the hook is on Keras's own class.
_originals: list[tuple[Any, Callable[..., None]]] = []


def install() -> None:
    """Let variables that Keras 3 makes from now on get their values later."""
    keras = sys.modules.get("keras")
    if keras is None or keras.config.backend() != "tensorflow" or _originals:
        return
    kind = keras.Variable
    original = getattr(kind, _METHOD, None)
    if original is None:  # a version of Keras that computes the values elsewhere
        return
    _originals.append((kind, original))

    def initialize(variable: Any, initializer: Any) -> None:
        shape, dtype = variable._shape, variable._dtype  # not those of an autocast scope
        size = tf.TensorShape(shape).num_elements() * tf.as_dtype(dtype).size
        if size < _LEAST_BYTES or not tf.executing_eagerly() or not _is_repeatable(initializer):
            original(variable, initializer)
            return
        original(variable, tf.zeros)
        defer(variable._value, lambda: initializer(shape, dtype=dtype))

    setattr(kind, _METHOD, initialize)


def remove() -> None:
    """Restore Keras's own method."""
    while _originals:
        kind, original = _originals.pop()
        setattr(kind, _METHOD, original)


def _is_repeatable(initializer: Any) -> bool:
    """Whether an initializer is one of Keras that returns the same values at any time."""
    is_own = type(initializer).__module__.startswith("keras.src.initializers.")
    return is_own and isinstance(getattr(initializer, "seed", 0), int)
