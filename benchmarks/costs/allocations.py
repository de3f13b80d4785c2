"""Every allocation of a run, in order: TensorFlow's own record of it, and collectives' buffers.

TensorFlow says in a profile what each tensor asked for; its allocator's statistics have the size
of the chunks that were at hand instead, up to twice as much, and depend on what ran before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2  # a profile as it is stored

from collectives.buffers import usage

__all__ = ["changes", "left_and_most"]

_ALLOCATIONS = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
_BUFFER = "collective_buffer"


def changes(run: Callable[[], object]) -> list[int]:
    """By how many bytes each allocation, and each end of one, changes what is in use.

    Args:
        run: runs a step. Every allocator that it uses is one that records
            (``TF_CPU_ALLOCATOR_USE_BFC=true`` before TensorFlow starts).
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
    """What a run leaves in use, and the most that it has in use at once, from 0."""
    return sum(deltas), max(0, max(accumulate(deltas), default=0))


def _note(change: int) -> None:
    with tf.profiler.experimental.Trace(_BUFFER, bytes=change):
        pass


def _changes(space: xplane_pb2.XSpace) -> Iterator[tuple[int, int]]:
    """Time in picoseconds and bytes."""
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
