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
_WITH_INPUTS = "tensoropt_operations_with_inputs_to_differentiate_by"


@contextlib.contextmanager
def forgotten_afterwards(graph: tf.Graph) -> Iterator[None]:
    """Drop the gradient functions that are made meanwhile, and what they hold.

    TensorFlow keeps every one of `tf.custom_gradient` for good, 50 MB of a middling program; once
    a program's gradients are emitted nobody asks for them. Nor does anybody for the operations of
    `differentiated_as` between outputs and who reads these. They read what outputs are made of,
    too, which so would be there for longer, and which no all-reduce could write over.

    Args:
        graph: in which nothing of what is made meanwhile is differentiated later.
    """
    registry = ops.gradient_registry._registry
    before = set(registry)
    try:
        yield
        for outputs, results in reversed(graph.get_collection(_WITH_INPUTS)):
            for output, result in zip(outputs, results, strict=True):
                _read_instead(output, result)
    finally:
        graph.clear_collection(_WITH_INPUTS)
        for name in set(registry) - before:
            del registry[name]


def _read_instead(output: tf.Tensor, result: tf.Tensor) -> None:
    """Let who reads the result of an operation that passes an output on read the output."""
    for reader in result.consumers():
        for place, tensor in enumerate(reader.inputs):
            if tensor is result:
                reader._update_input(place, output)


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

    graph = inputs[0].graph
    with overridden(graph, "IdentityN", function):
        made = list(tf.identity_n([*outputs, *others])[:count])
    if others:
        graph.add_to_collection(_WITH_INPUTS, (outputs, made))
    return made
