"""The static order of collectives in a graph, and its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import collectives
from collectives.operations.calls import CollectiveCall, Watch, on_tensors
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.operation import Collective
from collectives.transport.in_process import InProcessTransport

MEMBERS = [collectives.Group(each) for each in InProcessTransport.all_of(2)]


def allreduced(*sizes: int, record: str = "it") -> list[tf.Tensor]:
    """An allreduce of two ranks, on tensors of ones."""
    call = CollectiveCall(Allreduce(), tuple(MEMBERS))
    tensors = [tf.ones(sizes) for _ in MEMBERS]
    return on_tensors(tensors, [call], sizes, record)


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


class Overtaking:
    """A transport whose all-reduces overtake; nothing is moved."""

    is_stateful, overlaps, seconds = True, False, 0.0

    def watch(self, is_on: bool, asks: bool = False) -> None: ...

    def tell(self) -> None: ...

    def carries(self, collective: Collective, group: collectives.Group, dtype: tf.DType) -> bool:
        return True

    def starts(self, group: collectives.Group) -> bool:
        return False

    def overtakes(self, collective: Collective, dtype: tf.DType) -> bool:
        return isinstance(collective, Allreduce)

    def move(
        self,
        collective: Collective,
        group: collectives.Group,
        tensor: tf.Tensor,
        record: str,
        watch: Watch,
    ) -> tf.Tensor:
        return tf.identity(tensor)


def test_what_overtakes_waits_for_nothing_and_the_others_wait_for_it(graph: tf.Graph) -> None:
    def moved(collective: Collective) -> tf.Operation:
        call = CollectiveCall(collective, tuple(MEMBERS))
        ones = [tf.ones([2]) for _ in MEMBERS]
        return on_tensors(ones, [call], [2], "it", transport=Overtaking())[-1].op

    kinds = [Allgather(), Allreduce(), Allreduce(), Allgather(), Allreduce()]
    with collectives.Sequence() as sequence:
        built = [moved(kind) for kind in kinds]
    waits = [[runs_before(built[i], built[k]) for i in range(k)] for k in range(len(built))]
    assert waits == [[], [False], [False] * 2, [True] * 3, [False] * 4]
    assert sequence.overtaking == (built[1], built[2], built[4])
    assert sequence.fork().overtaking == sequence.overtaking
    with sequence:
        last = moved(Allgather())
    assert all(runs_before(each, last) for each in built)
    with sequence:
        with graph.control_dependencies(sequence.last):
            gate = tf.no_op("gate")
        sequence.hold([gate])
    with sequence.fork():
        held = [moved(Allreduce()), moved(Allgather())]
    assert all(runs_before(each, gate) for each in built)
    assert all(runs_before(gate, each) for each in held)


def test_collectives_that_are_started_wait_for_starts_only(graph: tf.Graph) -> None:
    """Others wait for the starts before them, and not for their ends."""
    starts, ends = [], []
    with collectives.Sequence() as sequence:
        for crosses in (True, False, True, False):

            def build(crosses: bool = crosses) -> list[tf.Tensor]:
                starts.append(tf.ones([2]).op)
                ends.append(tf.identity(starts[-1].outputs[0]).op if crosses else starts[-1])
                return [ends[-1].outputs[0]]

            sequence.add(build, "it", is_started=crosses)
    before = [[runs_before(starts[i], starts[k]) for i in range(k)] for k in range(4)]
    assert before == [[], [True], [True, False], [True, True, True]]
    assert not any(runs_before(ends[i], starts[k]) for i in (0, 2) for k in range(i + 1, 4))
    assert sequence.in_turn == (ends[1], ends[3])
    assert sequence.waits == sequence.fork().waits == (ends[0], ends[2])
    assert sequence.starts == (starts[0], starts[2])
    assert {ends[0], ends[2], ends[3]} <= set(sequence.last)  # the last waits for ends[1]
    sequence.hold([gate := tf.no_op()])
    with sequence.fork() as forked:
        forked.add(lambda: [tf.identity(tf.ones([2]))], "it", is_started=True)
    assert runs_before(gate, forked.last[-1])


def py_funcs(graph: tf.Graph) -> list[tf.Operation]:
    return [operation for operation in graph.get_operations() if operation.type == "PyFunc"]


def test_independent_collectives_run_in_the_order_of_construction(graph: tf.Graph) -> None:
    with collectives.Sequence() as sequence:
        for size in (2, 4, 6):
            allreduced(size, record=f"of {size}")
    first, second, third = py_funcs(graph)
    assert runs_before(first, second)
    assert runs_before(second, third)
    assert sequence.records == ("of 2", "of 4", "of 6")


def test_without_a_sequence_nothing_is_chained(graph: tf.Graph) -> None:
    allreduced(2)
    allreduced(2)
    first, second = py_funcs(graph)
    assert not runs_before(first, second)


def test_collectives_of_gradients_are_in_the_sequence(graph: tf.Graph) -> None:
    @tf.custom_gradient
    def doubled(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream + allreduced(3, record="backward")[0]

        return 2 * x, gradient

    with collectives.Sequence() as sequence:
        x = tf.ones([3])
        allreduced(2, record="forward")
        (found,) = tf.gradients(doubled(x), x)
    first, second = py_funcs(graph)
    assert runs_before(first, second)
    assert sequence.records == ("forward", "backward")
    with tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(found), [3, 3, 3])


def test_add_chains_what_a_caller_builds(graph: tf.Graph) -> None:
    with collectives.Sequence() as sequence:
        allreduced(2)
        (fused,) = sequence.add(lambda: [tf.identity(tf.constant(1.0))], "fused exchange")
        allreduced(2)
    before, after = py_funcs(graph)
    assert runs_before(before, fused.op)
    assert runs_before(fused.op, after)
    assert sequence.records[1] == "fused exchange"
    with pytest.raises(collectives.SequenceError, match="Got nothing of emptiness"):
        sequence.add(lambda: [], "emptiness")


def test_a_sequence_lies_in_one_graph(graph: tf.Graph) -> None:
    sequence = collectives.Sequence()
    with sequence:
        allreduced(2)
    with (
        tf.Graph().as_default() as other,
        sequence,
        pytest.raises(collectives.SequenceError, match="lie in one graph"),
    ):
        allreduced(2)
    assert other is not graph


def test_the_inner_sequence_takes_the_collectives_and_the_outer_goes_on(graph: tf.Graph) -> None:
    assert not graph.get_operations()
    with collectives.Sequence() as outer:
        allreduced(1, record="1")
        with collectives.Sequence() as inner:
            allreduced(2, record="2")
        allreduced(3, record="3")
    with outer:
        allreduced(4, record="4")
    allreduced(5, record="5")
    assert inner.records == ("2",)
    assert outer.records == ("1", "3", "4")


def test_forks_go_on_from_one_place(graph: tf.Graph) -> None:
    with collectives.Sequence() as common:
        allreduced(1, record="common")
    for record in ("one", "other"):
        with common.fork() as fork:
            allreduced(2, record=record)
        assert fork.records == ("common", record)
    first, second, third = py_funcs(graph)
    assert common.records == ("common",)
    assert runs_before(first, second)
    assert runs_before(first, third)
    assert not runs_before(second, third)


def test_sequences_are_left_in_reverse() -> None:
    outer, inner = collectives.Sequence(), collectives.Sequence()
    with pytest.raises(collectives.SequenceError, match="reverse"):
        outer.__exit__(None, None, None)
    with outer, inner, pytest.raises(collectives.SequenceError, match="reverse"):
        outer.__exit__(None, None, None)


def test_another_thread_has_no_active_sequence() -> None:
    def build() -> None:
        with tf.Graph().as_default():
            allreduced(2)

    with collectives.Sequence() as sequence:
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert sequence.records == ()


def test_eager_collectives_are_neither_chained_nor_recorded() -> None:
    with collectives.Sequence() as sequence:
        results = allreduced(2)
    assert [result.numpy().tolist() for result in results] == [[2, 2]] * 2
    assert sequence.records == ()
