"""TensorFlow's functions that read checkpoints wait for the checkpoint that is being written.

A rank may call them alone: it waits for its own thread, which ends when the checkpoint is in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.frontend.job.job import current, is_initialized
from tensoropt.tensorflow_private import checkpoint_management

__all__ = ["install"]

_NAMES = (
    "checkpoint_exists",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
)
_WAITS = "_tensoropt_waits"  # an attribute of functions that wait


def install() -> None:
    """Let TensorFlow's functions wait, from now on. Without a job they are as before."""
    for module in (tf.train, tf.compat.v1.train, tf.compat.v2.train, checkpoint_management):
        for name in _NAMES:
            original = getattr(module, name, None)
            if original is not None and not hasattr(original, _WAITS):
                setattr(module, name, _waiting(original))


def _waiting(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        if is_initialized():
            current().beside.wait_here()
        return read(*args, **kwargs)

    setattr(waiting, _WAITS, True)
    return waiting
