"""Messages of tensors, as operations of a TensorFlow graph in the order of its `Sequence`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from collectives.buffers import Array
from collectives.group import Group
from collectives.operations.calls import Unwatched, Watch
from collectives.sequence import in_active_sequence
from collectives.watchdog import about

__all__ = ["Envelope", "TensorMail", "is_sent", "receive_tensors", "send_tensors"]

_UNWATCHED = Unwatched()
_HOST_CALL = re.compile(r"(^|/)send(_\d+)?$")


class Envelope(NamedTuple):
    """The address of a message between this rank and another rank.

    Attributes:
        member: position of the other rank in the group.
        tag: identifies the message; the same on both ranks.
    """

    member: int
    tag: int


class TensorMail(Protocol):
    """Carries tensors between members of a group by operators of a graph; see
    `collectives.native.mail.Mail`."""

    def reaches(self, member: int) -> bool:
        """Whether it carries messages to and from a member; the same answer on both ranks."""

    def send(self, tensor: tf.Tensor, member: int, tag: int, record: str) -> tf.Tensor:
        """Send a tensor without waiting; return a tensor that is available after that."""

    def receive(
        self, shape: Sequence[int], dtype: tf.DType, member: int, tag: int, record: str
    ) -> tf.Tensor:
        """Wait for a tensor."""


def send_tensors(
    tensors: Sequence[tf.Tensor],
    group: Group,
    envelopes: Sequence[Envelope],
    record: str,
    watch: Watch = _UNWATCHED,
    mail: TensorMail | None = None,
) -> list[tf.Tensor]:
    """Send one tensor per envelope, without waiting for the receivers.

    The fetches of a run need not depend on the messages. The caller must therefore run the last
    operation of the sequence.

    Args:
        tensors: the tensors to send. An empty list sends no message, but still adds an operation to
            the sequence.
        group: the ranks.
        envelopes: the address of each tensor.
        record: description of the messages, for the sequence that they join.
        watch: is told when a host call for the messages runs.
        mail: carries messages to the members that it reaches; the same on all ranks.

    Returns:
        Tensors; the last one is available when all messages are sent.
    """
    own, others = _divided(mail, envelopes)

    def host(*values: Array) -> Any:
        started = perf_counter()
        with about(record):
            for value, number in zip(values, others, strict=True):
                group.send(value, *envelopes[number])
        watch.after(started, perf_counter())
        return np.int32(len(values))

    def build() -> list[tf.Tensor]:
        sent: list[tf.Tensor] = []
        for number in own:
            assert mail is not None, "which reaches it"
            with tf.control_dependencies(sent[-1:]):
                sent.append(mail.send(tensors[number], *envelopes[number], record))
        if others or not sent:
            with tf.control_dependencies(sent[-1:]):
                values = [tensors[number] for number in others]
                made = tf.numpy_function(host, values, tf.int32, name="send") if values else None
                sent.append(tf.zeros([], tf.int32) if made is None else made)
        return sent

    return in_active_sequence(build, record)


def is_sent(operation: tf.Operation) -> bool:
    """Whether an operation of `send_tensors` sends a message. It never waits for a receiver."""
    if operation.type == "PyFunc":
        return _HOST_CALL.search(operation.name) is not None
    return bool(operation.type == "CollectivesSend")


def receive_tensors(
    shapes: Sequence[tuple[int, ...]],
    dtype: tf.DType,
    group: Group,
    envelopes: Sequence[Envelope],
    record: str,
    watch: Watch = _UNWATCHED,
    mail: TensorMail | None = None,
) -> list[tf.Tensor]:
    """Receive one tensor per envelope, one after the other.

    Args:
        shapes: the shape of each tensor.
        dtype: the type of all tensors.
        group: the ranks.
        envelopes: the address of each tensor.
        record: see `send_tensors`.
        watch, mail: see `send_tensors`.
    """
    own, others = _divided(mail, envelopes)
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)

    def host() -> list[Array]:
        started = perf_counter()
        with about(record):
            found = [
                group.receive(shapes[number], numpy_dtype, *envelopes[number]) for number in others
            ]
        watch.after(started, perf_counter())
        return found

    def build() -> list[tf.Tensor]:
        received: dict[int, tf.Tensor] = {}
        last: list[tf.Tensor] = []
        for number in own:
            assert mail is not None, "which reaches it"
            with tf.control_dependencies(last):
                last = [mail.receive(shapes[number], dtype, *envelopes[number], record)]
            received[number] = last[0]
        if others:
            with tf.control_dependencies(last):
                found = tf.numpy_function(host, [], [dtype] * len(others), name="receive")
            for number, tensor in zip(others, found, strict=True):
                tensor.set_shape(shapes[number])
                received[number] = tensor
        # The sequence makes its next operation wait for the last tensor of this list.
        return [*received.values()]

    tensors = in_active_sequence(build, record)
    return [tensors[[*own, *others].index(number)] for number in range(len(shapes))]


def _divided(mail: TensorMail | None, envelopes: Sequence[Envelope]) -> tuple[list[int], list[int]]:
    """The indices of the messages that the mail carries, and the indices of the other messages."""
    own = [n for n, each in enumerate(envelopes) if mail is not None and mail.reaches(each.member)]
    return own, [n for n in range(len(envelopes)) if n not in own]
