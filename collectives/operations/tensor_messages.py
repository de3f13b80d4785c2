"""Messages of tensors, as operations of a TensorFlow graph in the order of its `Sequence`."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from collectives.buffers import Array
from collectives.group import Group
from collectives.operations.stages import Unwatched, Watch
from collectives.sequence import in_active_sequence
from collectives.watchdog import about

__all__ = ["Envelope", "receive_tensors", "send_tensors"]

_UNWATCHED = Unwatched()


class Envelope(NamedTuple):
    """Of a message between this rank and another.

    Attributes:
        member: position of the other one in the group.
        tag: tells messages apart; the same on both.
    """

    member: int
    tag: int


def send_tensors(
    tensors: Sequence[tf.Tensor],
    group: Group,
    envelopes: Sequence[Envelope],
    record: str,
    watch: Watch = _UNWATCHED,
) -> None:
    """Send a tensor each, without waiting for the receivers.

    Nothing that a run fetches need depend on it: the last of a sequence is to be run.

    Args:
        tensors: what is sent; nothing is, too, but takes its place in the sequence.
        group: the ranks.
        envelopes: one for each.
        record: what this is, for the sequence that it joins.
        watch: is told when it runs.
    """

    def host(*values: Array) -> Any:
        started = perf_counter()
        with about(record):
            for value, (target, tag) in zip(values, envelopes, strict=True):
                group.send(value, target, tag)
        watch.after(started, perf_counter())
        return np.int32(len(values))

    def build() -> list[tf.Tensor]:
        if not tensors:
            return [tf.zeros([], tf.int32)]
        return [tf.numpy_function(host, list(tensors), tf.int32, name="send")]

    in_active_sequence(build, record)


def receive_tensors(
    shapes: Sequence[tuple[int, ...]],
    dtype: tf.DType,
    group: Group,
    envelopes: Sequence[Envelope],
    record: str,
    watch: Watch = _UNWATCHED,
) -> list[tf.Tensor]:
    """Receive a tensor each, one after the other.

    Args:
        shapes: of the tensors.
        dtype: of all of them.
        group: the ranks.
        envelopes: one for each.
        record: see `send_tensors`.
        watch: see `send_tensors`.
    """
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)

    def host() -> list[Array]:
        started = perf_counter()
        with about(record):
            found = [
                group.receive(shape, numpy_dtype, source, tag)
                for shape, (source, tag) in zip(shapes, envelopes, strict=True)
            ]
        watch.after(started, perf_counter())
        return found

    def build() -> list[tf.Tensor]:
        received = tf.numpy_function(host, [], [dtype] * len(shapes), name="receive")
        for tensor, shape in zip(received, shapes, strict=True):
            tensor.set_shape(shape)
        return list(received)

    return in_active_sequence(build, record)
