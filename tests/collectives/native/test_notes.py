"""The times that collectives in C++ note, and the calls that Python knows of them."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from collectives.native.build import library
from collectives.native.noted_calls import NotedCall, noted, noted_call
from collectives.native.transport_library import BEFORE, NOTE, SOURCES, loaded
from collectives.native.window import chunk_bytes
from collectives.operations.calls import Unwatched

MOST_NOTES = 1 << 16


def _refused(_: int, reason: int, room: int) -> int:
    """Refuse to run a call, as where ranks run different steps."""
    ctypes.memmove(reason, b"another step", min(len(b"another step") + 1, room))
    return 1


def test_notes_that_nobody_takes_are_limited_and_failures_are_told() -> None:
    _, functions = loaded(library("collectives", SOURCES))
    chunk = chunk_bytes(1)
    memory = ctypes.create_string_buffer(functions.collectives_window_bytes(1, chunk) + 4096)
    base = ctypes.addressof(memory) + -ctypes.addressof(memory) % 4096
    window = functions.collectives_open(base, 0, 1, chunk, 0.0, False, None, 1 << 15, 0.0)
    array = np.ones([1, 1], np.float32)
    address = array.ctypes.data_as(ctypes.c_void_p)
    alone, none = (ctypes.c_int * 1)(0), (ctypes.c_int64 * 0)()
    reason = ctypes.create_string_buffer(b"an earlier failure", 64)

    def run() -> None:
        functions.collectives_run(
            *(window, -1, b"allreduce", alone, 1, 0, 1, 1, 0, 0, none, 0, 0, address, address),
            *(reason, len(reason)),
        )
        assert reason.value == b""

    notes = np.empty(2 * MOST_NOTES, NOTE)
    functions.collectives_observe(True, BEFORE())
    try:
        for _ in range(MOST_NOTES):
            run()
        noted_seconds = functions.collectives_seconds()
        run()
        assert functions.collectives_seconds() > noted_seconds
        assert functions.collectives_take_notes(notes.ctypes.data, len(notes)) == MOST_NOTES
        run()
        assert functions.collectives_take_notes(notes.ctypes.data, len(notes)) == 1
        refuse = BEFORE(_refused)
        functions.collectives_observe(False, refuse)
        with pytest.raises(AssertionError):
            run()
        assert reason.value == b"another step"
    finally:
        functions.collectives_observe(False, BEFORE())


class _Chain(Unwatched):
    """A watch that refers to the graph of its collectives."""

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = graph


def _graph_with_calls() -> tuple[tf.Graph, list[int], weakref.ref[_Chain]]:
    """Return a graph with a call in it and one in a function, their numbers, and their watch."""
    numbers = []
    with tf.Graph().as_default() as graph:
        chain = _Chain(graph)
        numbers.append(noted(NotedCall(chain, "one", (0, 1))))

        @tf.function
        def function() -> tf.Tensor:
            numbers.append(noted(NotedCall(chain, "in a function", (0, 1))))
            return tf.constant(1)

        function()
    return graph, numbers, weakref.ref(chain)


def test_a_call_and_its_watch_live_as_long_as_the_graph() -> None:
    graph, numbers, chain = _graph_with_calls()
    gc.collect()
    assert [noted_call(number).record for number in numbers] == ["one", "in a function"]
    assert len(set(numbers)) == 2
    del graph
    gc.collect()
    assert chain() is None
    assert [noted_call(number) for number in numbers] == [None, None]
