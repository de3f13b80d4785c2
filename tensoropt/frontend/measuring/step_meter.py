"""The cost of one step on this rank: time, time in collectives, and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter
from types import TracebackType

import tensorflow as tf

from collectives.buffers import usage
from tensoropt.execution.world.world import World
from tensoropt.frontend.measuring.heap_samples import HeapSamples

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
