"""Samples of what a step has on the heap, where TensorFlow's allocator counts nothing.

TensorFlow's oneDNN allocator takes tensors below 256 KiB from the C library's heap, uncounted.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable

__all__ = ["HeapSamples"]

_SECONDS = 0.001
_KEPT_BYTES = 1 << 18
"""A step after which the heap is larger by more has made what stays: it is compiled, or the
allocator gets memory for more tensors. What it took for itself cannot be told."""

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (*_FIELDS, "fordblks", "keepcost")]


class HeapSamples:
    """While it runs, a thread looks about every millisecond at what the heap has grown by.

    Args:
        counted: bytes that are in use by others' counts, on the heap (first) or not (second).
    """

    def __init__(self, counted: Callable[[], tuple[int, int]]) -> None:
        self._counted = counted
        self._most = 0
        self._before = 0
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def start(self) -> None:
        """Begin, where the C library tells what is on its heap (glibc 2.33 does)."""
        if _mallinfo() is not None:
            self._before = self._uncounted()
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def stop(self) -> int:
        """The most that was in use at once in a sample; 0 where it cannot be told."""
        if self._thread is None:
            return 0
        self._end.set()
        self._thread.join()
        stayed = abs(self._uncounted() - self._before) > _KEPT_BYTES
        return 0 if stayed else self._most

    def _sample(self) -> None:
        while not self._end.wait(_SECONDS):
            before, heap, after = self._counted(), _heap_bytes(), self._counted()
            # What changes meanwhile counts as little as it can.
            grown = heap - max(before[0], after[0]) - self._before
            self._most = max(self._most, min(sum(before), sum(after)) + max(0, grown))

    def _uncounted(self) -> int:
        """Bytes on the heap, of this process, without those that others count."""
        return _heap_bytes() - self._counted()[0]


def _heap_bytes() -> int:
    mallinfo = _mallinfo()
    assert mallinfo is not None, "looked for"
    found = mallinfo()
    return int(found.uordblks) + int(found.hblkhd)


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo] | None:
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    found.restype = _Mallinfo
    return found
