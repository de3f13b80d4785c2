"""Counting the bytes of buffers that collectives return."""

from __future__ import annotations

import gc

import numpy as np

from collectives.buffers import Usage, fresh, usage


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


def test_fresh_arrays_are_counted() -> None:
    before = usage.bytes
    array = fresh((256, 4), np.dtype(np.float32))
    assert usage.bytes - before >= array.nbytes
    del array
    gc.collect()
    assert usage.bytes == before
