"""What one step takes on this rank: time, time in collectives, and memory."""

from __future__ import annotations

from time import perf_counter

import tensorflow as tf

from collectives.buffers import usage
from tensoropt.execution.world import World

__all__ = ["Meter", "allocated_bytes"]

_DEVICE = "CPU:0"


class Meter:
    """Starts when it is made.

    Args:
        world: that runs the step.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_memory = _reset_peak()
        self._network = world.network_seconds
        self._started = perf_counter()

    def step_seconds(self) -> float:
        """Time since the start."""
        return perf_counter() - self._started

    def network_seconds(self) -> float:
        """Time in collectives since the start."""
        return self._world.network_seconds - self._network

    def peak_bytes(self) -> int | None:
        """The most that was in use since the start: by TensorFlow's allocator, and beside it of
        collectives' buffers, whose peaks are taken to come together. None where the allocator
        keeps no count (without oneDNN), or several ranks share it."""
        if not self._has_memory or len(self._world.ranks) > 1:
            return None
        return int(tf.config.experimental.get_memory_info(_DEVICE)["peak"]) + usage.peak_bytes


def allocated_bytes() -> int | None:
    """What TensorFlow's allocator and collectives have in use now; None without a count."""
    if not _reset_peak():
        return None
    return int(tf.config.experimental.get_memory_info(_DEVICE)["current"]) + usage.bytes


def _reset_peak() -> bool:
    """Whether the allocator keeps a count."""
    usage.reset()
    try:
        tf.config.experimental.reset_memory_stats(_DEVICE)
    except (ValueError, tf.errors.OpError):
        return False
    return True
