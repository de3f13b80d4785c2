"""The static order of collectives in a graph, and its records."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import collectives
from collectives.buffers import Array
from collectives.sequence import first_difference
from collectives.transport.single import SingleTransport


class EchoTransport(SingleTransport):
    """Position 0 of two, whose peer always sends the same as it does."""

    ranks = (0, 1)

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        assert reducer == "sum"
        receive[...] = 2 * send

    def allgather(self, send: Array, receive: Array) -> None:
        receive.reshape(2, -1)[...] = send

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        assert reducer == "sum"
        receive[...] = 2 * send[: receive.size]


@pytest.fixture
def pair() -> collectives.Group:
    return collectives.Group(EchoTransport())


@pytest.fixture
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def runs_before(first: tf.Operation, second: tf.Operation) -> bool:
    """Whether ``second`` waits for ``first``, through inputs and control inputs."""
    seen: set[str] = set()
    waiting = [second]
    while waiting:
        operation = waiting.pop()
        if operation is first:
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return False


def py_funcs(graph: tf.Graph) -> list[tf.Operation]:
    return [operation for operation in graph.get_operations() if operation.type == "PyFunc"]


def test_independent_collectives_run_in_the_order_of_construction(
    pair: collectives.Group, graph: tf.Graph
) -> None:
    with collectives.Sequence() as sequence:
        for size in (2, 4, 6):
            collectives.allreduce(tf.ones([size]), pair)
    first, second, third = py_funcs(graph)
    assert runs_before(first, second)
    assert runs_before(second, third)
    assert sequence.tail is third


def test_without_a_sequence_nothing_is_chained(pair: collectives.Group, graph: tf.Graph) -> None:
    collectives.allreduce(tf.ones([2]), pair)
    collectives.allreduce(tf.ones([2]), pair)
    first, second = py_funcs(graph)
    assert not runs_before(first, second)


def test_collectives_of_gradients_are_in_the_sequence(
    pair: collectives.Group, graph: tf.Graph
) -> None:
    with collectives.Sequence() as sequence:
        x = tf.ones([2, 3])
        y = collectives.allgather(x, 0, pair, name="gather")
        z = collectives.allreduce(x, pair)
        (found,) = tf.gradients(y, x)
        (other,) = tf.gradients(z, x)
    operations = py_funcs(graph)
    assert len(operations) == 4
    for first, second in itertools.pairwise(operations):
        assert runs_before(first, second)
    kinds = [record.split(" as ")[0] for record in sequence.records]
    assert kinds == [
        "allgather dim 0 float32[2,3] ranks 0,1",
        "allreduce sum float32[2,3] ranks 0,1",
        "reduce_scatter sum dim 0 float32[4,3] ranks 0,1",
        "allreduce sum float32[2,3] ranks 0,1",
    ]
    assert sequence.records[0].endswith(" as gather")
    with tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(found), np.full((2, 3), 2.0))
        np.testing.assert_array_equal(session.run(other), np.full((2, 3), 2.0))


def test_a_group_of_one_is_recorded_and_takes_no_call_to_python(graph: tf.Graph) -> None:
    with collectives.Sequence() as sequence:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        results = [
            collectives.allreduce(x),
            collectives.reduce_scatter(x, 1),
            collectives.alltoall(x, 1, 0),
            collectives.broadcast(x),
        ]
        gradients = tf.gradients(results, [x])
    assert not py_funcs(graph)
    assert sequence.records[1] == "reduce_scatter sum dim 1 float32[?,4] ranks 0 as reduce_scatter"
    assert len(sequence.records) == 8
    with tf.compat.v1.Session() as session:
        (found,) = session.run(gradients, {x: np.ones((3, 4))})
    np.testing.assert_array_equal(found, np.full((3, 4), 4.0))


def test_add_chains_what_a_caller_builds(pair: collectives.Group, graph: tf.Graph) -> None:
    with collectives.Sequence() as sequence:
        first = collectives.allreduce(tf.ones([2]), pair)
        (fused,) = sequence.add(lambda: [tf.identity(tf.constant(1.0))], "fused exchange")
        last = collectives.allreduce(tf.ones([2]), pair)
    before, after = py_funcs(graph)
    assert first.graph is last.graph
    assert runs_before(before, fused.op)
    assert runs_before(fused.op, after)
    assert sequence.records[1] == "fused exchange"
    with pytest.raises(collectives.SequenceError, match="Got nothing of emptiness"):
        sequence.add(lambda: [], "emptiness")


def test_a_sequence_lies_in_one_graph(graph: tf.Graph) -> None:
    sequence = collectives.Sequence()
    with sequence:
        collectives.allreduce(tf.ones([2]))
    with (
        tf.Graph().as_default() as other,
        sequence,
        pytest.raises(collectives.SequenceError, match="lie in one graph"),
    ):
        collectives.allreduce(tf.ones([2]))
    assert other is not graph


def test_the_inner_sequence_takes_the_collectives_and_the_outer_goes_on(graph: tf.Graph) -> None:
    assert not graph.get_operations()
    with collectives.Sequence() as outer:
        collectives.allreduce(tf.ones([1]))
        with collectives.Sequence() as inner:
            collectives.allreduce(tf.ones([2]))
        collectives.allreduce(tf.ones([3]))
    with outer:
        collectives.allreduce(tf.ones([4]))
    collectives.allreduce(tf.ones([5]))
    assert [record.split()[2] for record in inner.records] == ["float32[2]"]
    assert [record.split()[2] for record in outer.records] == [f"float32[{i}]" for i in (1, 3, 4)]


def test_sequences_are_left_in_reverse() -> None:
    outer, inner = collectives.Sequence(), collectives.Sequence()
    with pytest.raises(collectives.SequenceError, match="reverse"):
        outer.__exit__(None, None, None)
    with outer, inner, pytest.raises(collectives.SequenceError, match="reverse"):
        outer.__exit__(None, None, None)


def test_another_thread_has_no_active_sequence() -> None:
    def build() -> None:
        with tf.Graph().as_default():
            collectives.allreduce(tf.ones([2]))

    with collectives.Sequence() as sequence:
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert sequence.records == ()


def test_eager_collectives_are_neither_chained_nor_recorded(pair: collectives.Group) -> None:
    with collectives.Sequence() as sequence:
        result = collectives.allreduce(tf.constant([1.0, 2.0]), pair)
    np.testing.assert_array_equal(result, [2.0, 4.0])
    assert sequence.records == ()
    assert sequence.tail is None


def test_records_are_compared() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == (1, "b", "c")
    assert first_difference(["a"], ["a", "c"]) == (1, None, "c")
    assert first_difference(["a"], []) == (0, "a", None)
    assert collectives.Sequence.first_difference is first_difference


def test_the_digest_is_of_the_records(graph: tf.Graph) -> None:
    assert not graph.get_operations()
    with collectives.Sequence() as sequence:
        collectives.allreduce(tf.ones([2]), name="one")
        collectives.allreduce(tf.ones([2]), name="two")
    text = "\n".join(f"allreduce sum float32[2] ranks 0 as {name}" for name in ("one", "two"))
    assert sequence.digest() == hashlib.sha256(text.encode()).hexdigest()
    sequence.check()
