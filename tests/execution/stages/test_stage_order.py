"""A stage's rank waits for a message when all is done that was emitted before it."""

from __future__ import annotations

import tensorflow as tf

from collectives import Group
from collectives.operations.tensor_messages import (
    Envelope,
    is_sent,
    receive_tensors,
    send_tensors,
)
from collectives.sequence import Sequence
from collectives.transport.in_process import InProcessTransport
from tensoropt.execution.passes.rank_balance import balance_ranks


def needs(operation: tf.Operation) -> set[tf.Operation]:
    """All operators that have run before an operator."""
    found: set[tf.Operation] = set()
    waiting = [operation]
    while waiting:
        each = waiting.pop()
        before = {*(given.op for given in each.inputs), *each.control_inputs} - found
        found |= before
        waiting += before
    return found


def test_what_is_sent_goes_at_once_and_a_rank_waits_when_it_has_nothing_else_to_do() -> None:
    group = Group(InProcessTransport((0, 1, 2), 0))
    with tf.Graph().as_default() as graph, Sequence() as sequence:
        (first,) = receive_tensors([(4,)], tf.float32, group, [Envelope(1, 0)], "receive")
        rest, made = tf.sin(first), tf.exp(first)
        send_tensors([made], group, [Envelope(1, 1)], "send made")
        envelopes = [Envelope(1, 2), Envelope(2, 3)]
        received = receive_tensors([(4,), (4,)], tf.float32, group, envelopes, "receive")
        later = tf.exp(received[0]) + received[1] + rest
    (sent,) = filter(is_sent, sequence.in_turn)
    waiting = [each for each in sequence.in_turn if each is not sent]
    assert rest.op not in needs(waiting[-1])
    balance_ranks(graph.get_operations(), [sent, later.op], waiting, 0)
    assert rest.op not in needs(sent)
    assert made.op in needs(sent)
    assert {rest.op, made.op, sent} <= needs(waiting[-1])
