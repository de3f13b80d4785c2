"""Samples of a step's heap memory that TensorFlow's allocators do not count.

TensorFlow's oneDNN allocator takes tensors below 256 KiB from the C library's heap without counting
them.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable

__all__ = ["HeapSamples"]

_SECONDS = 0.001  # between two samples
_KEPT_BYTES = 1 << 18
"""If the heap has grown by more after a step, the step left memory behind: it was compiled, or an
allocator took memory for more tensors. The step's own memory is then unknown."""

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (*_FIELDS, "fordblks", "keepcost")]


class HeapSamples:
    """Samples the growth of the heap about every millisecond, in a thread.

    Args:
        counted: returns the bytes in use that allocators count: on the heap, and elsewhere.
    """

    def __init__(self, counted: Callable[[], tuple[int, int]]) -> None:
        self._counted = counted
        self._most = 0
        self._before = 0
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def start(self) -> None:
        """Start sampling, if the C library reports the size of its heap (glibc 2.33 does)."""
        if _mallinfo() is not None:
            self._before = self._uncounted()
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def stop(self) -> int:
        """The largest sample of bytes in use; 0 if it is not known."""
        if self._thread is None:
            return 0
        self._end.set()
        self._thread.join()
        stayed = abs(self._uncounted() - self._before) > _KEPT_BYTES
        return 0 if stayed else self._most

    def _sample(self) -> None:
        while not self._end.wait(_SECONDS):
            before, heap, after = self._counted(), _heap_bytes(), self._counted()
            # A change between the two counts is attributed so that the sample is smallest.
            grown = heap - max(before[0], after[0]) - self._before
            self._most = max(self._most, min(sum(before), sum(after)) + max(0, grown))

    def _uncounted(self) -> int:
        """Bytes on the heap of this process that no allocator counts."""
        return _heap_bytes() - self._counted()[0]


def _heap_bytes() -> int:
    mallinfo = _mallinfo()
    assert mallinfo is not None, "start has checked it"
    info = mallinfo()
    return int(info.uordblks) + int(info.hblkhd)


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    function.restype = _Mallinfo
    return function
