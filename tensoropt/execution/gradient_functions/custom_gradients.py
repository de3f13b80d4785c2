"""Gradient functions of an emitted graph, kept only while the graph is differentiated."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import ops

__all__ = ["differentiated_as", "forgotten_afterwards", "overridden", "registered_gradient"]

_numbers = itertools.count()
_PAIRS = "tensoropt_outputs_and_their_copies"
"""Graph collection of pairs from `differentiated_as`: the outputs, and the tensors made of them."""


@contextlib.contextmanager
def forgotten_afterwards(graph: tf.Graph) -> Iterator[None]:
    """Forget the gradient functions that are made while the context lasts.

    TensorFlow never frees the function of a `tf.custom_gradient`: 50 MB for a program of middling
    size. Once a program's gradients are emitted, no function is called again.

    The operations of `differentiated_as` are needed no longer, either. So readers of their results
    read the outputs themselves. Otherwise the inputs of the outputs, which these operations read,
    would stay in memory for longer, and no all-reduce could overwrite them.

    Args:
        graph: the graph. Operations that are made meanwhile must not be differentiated later.
    """
    registry = ops.gradient_registry._registry
    before = set(registry)
    try:
        yield
        for outputs, copies in reversed(graph.get_collection(_PAIRS)):
            for output, copy in zip(outputs, copies, strict=True):
                _read_instead(output, copy)
    finally:
        graph.clear_collection(_PAIRS)
        for name in set(registry) - before:
            del registry[name]


def _read_instead(output: tf.Tensor, copy: tf.Tensor) -> None:
    """Let all readers of an output's copy read the output."""
    for reader in copy.consumers():
        for number, tensor in enumerate(reader.inputs):
            if tensor is copy:
                reader._update_input(number, output)


def registered_gradient(kind: str) -> Callable[..., Any]:
    """Return the gradient function that TensorFlow has for an operator type or a registered name.

    Raises:
        LookupError: if there is none.
    """
    function: Callable[..., Any] = ops.gradient_registry.lookup(kind)
    return function


@contextlib.contextmanager
def overridden(graph: tf.Graph, kind: str, function: Callable[..., Any]) -> Iterator[None]:
    """Give operations that are created while the context lasts another gradient function.

    Args:
        graph: the graph in which the operations are created.
        kind: the type of the operations.
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
    """Return copies of outputs whose gradients by the inputs come from a given function.

    This makes one operation; `tf.custom_gradient` makes one more for each tensor.

    Args:
        outputs: tensors that are computed from the inputs, or the inputs themselves.
        inputs: tensors of the same graph.
        gradient: returns the gradients by the inputs, given the gradients by the outputs. If an
            output has no reader, the gradient by it is zero.
    """
    same = all(output is input_ for output, input_ in zip(outputs, inputs, strict=False))
    apart = [] if same and len(outputs) == len(inputs) else list(inputs)
    count = len(outputs)

    def function(_: tf.Operation, *upstream: Any) -> list[Any]:
        gradients = gradient(*upstream[:count])
        return [None] * count + gradients if apart else gradients

    graph = inputs[0].graph
    with overridden(graph, "IdentityN", function):
        copies = list(tf.identity_n([*outputs, *apart])[:count])
    if apart:
        graph.add_to_collection(_PAIRS, (outputs, copies))
    return copies
