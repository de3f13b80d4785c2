"""The cost of one step on this rank: time, time in collectives, and memory."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from time import perf_counter

import tensorflow as tf

from collectives.buffers import usage
from tensoropt.execution.world.world import World

__all__ = ["Meter", "allocated_bytes"]


class Meter:
    """A context that measures the step that runs in it.

    TensorFlow's allocator counts its own peak, without the buffers of collectives. Whenever a
    buffer is allocated or freed, the meter adds the size of the buffers to the allocator's peak
    since the last change, and resets that peak. The largest of these sums is the step's peak. The
    allocator does not count small tensors; samples of them (`HeapSamples`) may raise the peak.

    Args:
        world: the world that runs the step.
        counts_memory: whether to measure memory, which takes some microseconds for each buffer.
    """

    def __init__(self, world: World, counts_memory: bool = True) -> None:
        self._world = world
        self._counts_memory = counts_memory and len(world.ranks) == 1
        self._has_memory = False
        self._most = 0
        self._seconds = 0.0
        self._network = 0.0
        self._started = 0.0
        self._before: Callable[[int], None] | None = None
        self._heap: HeapSamples | None = None

    def __enter__(self) -> Meter:
        self._has_memory = self._counts_memory and _reset_peak()
        self._most = 0
        self._before = usage.changed
        if self._has_memory:
            usage.changed = self._changed
            if _device() == "CPU:0":
                self._heap = HeapSamples(_counted)
                self._heap.start()
        self._network = self._world.network_seconds
        self._started = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = perf_counter() - self._started
        self._network = self._world.network_seconds - self._network
        if self._has_memory:
            usage.changed = self._before
            self._add(usage.bytes)
            if self._heap is not None:
                self._most = max(self._most, self._heap.stop())

    def step_seconds(self) -> float:
        """The duration of the context."""
        return self._seconds

    def network_seconds(self) -> float:
        """The time in collectives."""
        return self._network

    def peak_bytes(self) -> int | None:
        """The most memory in use at once, by TensorFlow's allocator and collectives' buffers.

        The allocator counts chunks, which may be up to twice as large as a tensor. On a CPU,
        tensors below 256 KiB are counted if the step made them and is not the first. None if the
        allocator keeps no count (without oneDNN), if several ranks share it, or if
        ``counts_memory`` is off.
        """
        return self._most if self._has_memory else None

    def _changed(self, change: int) -> None:
        """Buffers have just grown by ``change`` bytes: include the peak before that."""
        self._add(usage.bytes - change)
        tf.config.experimental.reset_memory_stats(_device())
        if self._before is not None:
            self._before(change)

    def _add(self, buffer_bytes: int) -> None:
        peak = int(tf.config.experimental.get_memory_info(_device())["peak"])
        self._most = max(self._most, peak + buffer_bytes)


def _counted() -> tuple[int, int]:
    """Bytes in use: by collectives' buffers, which are on the heap, and by TensorFlow's count."""
    return usage.bytes, int(tf.config.experimental.get_memory_info(_device())["current"])


def allocated_bytes() -> int | None:
    """Bytes in use now by TensorFlow's allocator and collectives; None without a count."""
    if not _reset_peak():
        return None
    return int(tf.config.experimental.get_memory_info(_device())["current"]) + usage.bytes


@functools.cache
def _device() -> str:
    """The device that a rank computes on: its GPU, the only visible one, or its CPU."""
    return "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def _reset_peak() -> bool:
    """Reset the allocator's peak, and return whether the allocator keeps a count."""
    try:
        tf.config.experimental.reset_memory_stats(_device())
    except (ValueError, tf.errors.OpError):
        return False
    return True


_SECONDS = 0.001  # between two samples
_KEPT_BYTES = 1 << 18
"""If the heap has grown by more after a step, the step left memory behind: it was compiled, or an
allocator took memory for more tensors. The step's own memory is then unknown."""

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (*_FIELDS, "fordblks", "keepcost")]


class HeapSamples:
    """Samples the growth of the heap about every millisecond, in a thread.

    TensorFlow's oneDNN allocator takes tensors below 256 KiB from the C library's heap without
    counting them.

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
