"""Counting the bytes of buffers that collectives return."""

from __future__ import annotations

import gc

import numpy as np

from collectives.buffers import Usage, contiguous, fresh, usage


def test_a_buffer_counts_until_its_last_view_is_gone() -> None:
    own = Usage()
    buffer = np.empty(1000, np.uint8)
    own.add(buffer)
    view = buffer[:10]
    del buffer
    assert (own.bytes, own.peak_bytes) == (1000, 1000)
    own.reset()
    second = np.empty(500, np.uint8)
    own.add(second)
    del view, second
    gc.collect()
    assert (own.bytes, own.peak_bytes) == (0, 1500)
    own.reset()
    assert own.peak_bytes == 0


def test_whoever_watches_is_told_of_each_buffer() -> None:
    own, told = Usage(), []
    own.changed = told.append
    buffer = np.empty(1000, np.uint8)
    own.add(buffer)
    del buffer
    gc.collect()
    assert told == [1000, -1000]


def test_what_is_copied_to_be_sent_is_counted() -> None:
    array = np.zeros((64, 64), np.float32)
    before = usage.bytes
    assert contiguous(array) is array
    copies = [contiguous(array.T), contiguous(array, np.dtype(np.float64))]
    assert usage.bytes - before >= sum(copy.nbytes for copy in copies)


def test_fresh_arrays_are_counted() -> None:
    before = usage.bytes
    array = fresh((256, 4), np.dtype(np.float32))
    assert usage.bytes - before >= array.nbytes
    del array
    gc.collect()
    assert usage.bytes == before
