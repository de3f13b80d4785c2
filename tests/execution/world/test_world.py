"""Ranks get the values that the first rank feeds: the number of messages, and no value is lost.
And collectives whose shards differ between ranks belong to one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from collectives import Group
from collectives.sequence import Sequence
from collectives.transport.in_process import InProcessTransport
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.execution.world.world import World
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep


class Wire:
    """What the first rank has sent, which the others are given."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.received = 0
        self.is_first = True

    def broadcast(self, array: Any, root: int) -> Any:
        assert root == 0
        return self._passed(array)

    def allgather_object(self, value: Any) -> list[Any]:
        return [self._passed(value), value]

    def _passed(self, value: Any) -> Any:
        if self.is_first:
            self.sent.append(value)
            return value
        self.received += 1
        return self.sent[self.received - 1]


@pytest.fixture
def shared() -> Callable[[list[Any], list[Any]], tuple[list[Any], int]]:
    """What another rank has of the first one's values, and in how many messages."""

    def through(first: list[Any], other: list[Any]) -> tuple[list[Any], int]:
        group = Group(InProcessTransport((0, 1)))
        world, wire = MPIWorld(Mesh.of(2), group, transport="host"), Wire()
        world.groups = lambda axes: (wire,)  # type: ignore[assignment,return-value]
        for mine, truth in zip(world.share(first, (0,)), first, strict=True):
            np.testing.assert_array_equal(mine, truth)
        wire.is_first = False
        return world.share(other, (0,)), len(wire.sent)

    return through


def test_whole_feeds_travel_in_one_message(
    shared: Callable[[list[Any], list[Any]], tuple[list[Any], int]],
) -> None:
    first = [
        np.array(0.5, np.float16),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.zeros((0, 3), np.float32),
        np.array([True, False, True]),
        np.array([1 + 2j]),
    ]
    found, messages = shared(first, [np.zeros_like(value) for value in first])
    assert messages == 1
    for value, truth in zip(found, first, strict=True):
        assert value.dtype == truth.dtype
        assert value.flags.aligned
        np.testing.assert_array_equal(value, truth)


def test_strings_travel_in_another_one(
    shared: Callable[[list[Any], list[Any]], tuple[list[Any], int]],
) -> None:
    first = [np.array([[b"a", b"bc"]], object), np.array(3), np.array(b"", object)]
    other = [np.array([[b"", b""]], object), np.array(4), np.array(b"x", object)]
    found, messages = shared(first, other)
    assert messages == 2
    assert [value.tolist() for value in found] == [[[b"a", b"bc"]], 3, b""]


def test_a_program_of_equal_shards_after_another_one_goes_in_hierarchy() -> None:
    everyone = InProcessTransport.all_of(4, ("first", "first", "second", "second"))
    world = World(Mesh.of(4), [Group(each) for each in everyone])
    sizes: list[int] = []

    def asked(kind: str, axes: tuple[int, ...], bytes_: int) -> bool:
        sizes.append(bytes_)
        return True

    world._goes_in_hierarchy = asked
    sums = ReshardStep("allreduce", (0, 1), Layout(((),), (0, 1)), Layout(((),)), reducer="sum")
    shapes = []
    for differ in (True, False):
        with tf.Graph().as_default(), Sequence() as sequence:
            sequence.shards_differ = differ
            world.reshard([tf.ones([6])] * 4, [sums], "sums")
        with sequence.fork() as forked:
            assert forked.shards_differ == differ
        shapes.append("[6]" in sequence.records[0])
    assert (shapes, sizes) == ([False, True], [24])
