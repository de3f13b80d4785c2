"""Records every allocation of a run in order: TensorFlow's and those of collectives' buffers.

TensorFlow's profile has the requested size of each tensor. The statistics of its allocator have the
sizes of the chunks instead, which are up to twice as large and depend on earlier runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2  # the format of stored profiles

from collectives.buffers import usage

__all__ = ["changes", "left_and_most"]

_ALLOCATIONS = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
_BUFFER = "collective_buffer"


def changes(run: Callable[[], object]) -> list[int]:
    """For each allocation and each release, the change of the bytes in use.

    Args:
        run: runs a step. All its allocators record allocations, so
            ``TF_CPU_ALLOCATOR_USE_BFC=true`` is set before TensorFlow starts.
    """
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        usage.changed = _note
        tf.profiler.experimental.start(folder, options)
        try:
            run()
        finally:
            tf.profiler.experimental.stop()
            usage.changed = None
        (stored,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(stored.read_bytes())
    return [change for _, change in sorted(_changes(space), key=lambda found: found[0])]


def left_and_most(deltas: list[int]) -> tuple[int, int]:
    """The bytes in use after a run, and the most bytes in use at once, counted from 0."""
    return sum(deltas), max(0, max(accumulate(deltas), default=0))


def _note(change: int) -> None:
    with tf.profiler.experimental.Trace(_BUFFER, bytes=change):
        pass


def _changes(space: xplane_pb2.XSpace) -> Iterator[tuple[int, int]]:
    """The times in picoseconds and the bytes of all changes in a profile."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                known = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
                at = line.timestamp_ns * 1000 + event.offset_ps
                if name in _ALLOCATIONS:
                    yield at, _ALLOCATIONS[name] * _integer(known["requested_bytes"])
                elif name.startswith(_BUFFER):
                    yield at, _integer(known["bytes"])


def _integer(stat: xplane_pb2.XStat) -> int:
    return int(getattr(stat, stat.WhichOneof("value")))
