"""Times collectives on the ranks that run it; the first rank writes the times to a file.

mpirun -np 2 python -m benchmarks.collectives.measure KIND,KIND... BYTES... RESULT.json

The ways to run a collective take turns of some milliseconds, and the median of a way's turns
counts. The slowest rank determines the time of a turn. Buffers hold float32 and are ready, so the
times are those of C++, of MPI and of one call from Python, without TensorFlow. ``in_graph`` is the
time of one all-reduce in a chain of all-reduces in one run of a graph.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import collectives
from collectives.buffers import as_bytes, fresh
from collectives.group import Group
from collectives.native.transport import NativeTransport, native_transport
from collectives.operations.calls import CollectiveCall, on_tensors
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.transport.launch import detect
from collectives.transport.mpi import MpiTransport, connect

__all__ = ["KINDS", "SIZES", "Times"]

KINDS = ("allreduce", "allgather", "reduce_scatter", "alltoall", "in_graph")
SIZES = tuple(4**power for power in range(6, 14))
"""Bytes of each rank: 4 KiB to 64 MiB."""

_COLLECTIVES: dict[str, Collective] = {
    "allreduce": Allreduce("sum"),
    "allgather": Allgather(0),
    "reduce_scatter": ReduceScatter(0, "sum"),
    "alltoall": Alltoall(0, 0),
}
_TURNS = 11
_TURN_SECONDS = 0.01
_LONGEST_CHAIN, _CHAIN_BYTES = 8, 1 << 25

Times = dict[str, dict[str, dict[str, float]]]
"""Milliseconds by kind, bytes and way."""
Way = Callable[[], object]


def main(result: Path, kinds: Sequence[str], sizes: Sequence[int]) -> None:
    """Measure these kinds and sizes; every rank calls."""
    world = collectives.world()
    native = native_transport(world)
    launch = detect()
    if native is None or launch is None:
        raise SystemExit("benchmarks.collectives compares the native operator on several ranks.")
    mpi = connect(launch)
    times: Times = {kind: {} for kind in kinds}
    for size in sizes:
        for kind in kinds:
            if kind == "in_graph":
                found = _in_graph(size, world, native)
            else:
                found = _medians(world, _ways(kind, size, world, native, mpi))
            times[kind][str(size)] = found
    if world.rank == 0:
        result.write_text(json.dumps(times))


def _ways(
    kind: str, size: int, world: Group, native: NativeTransport, mpi: MpiTransport
) -> dict[str, Way]:
    """The ways to run the collective on ready buffers."""
    n = world.size
    columns = min(256, size // 4 // n)
    rows = size // 4 // columns
    given = fresh((rows, columns), np.dtype(np.float32))
    given[...] = 1
    made = {"allgather": rows * n, "reduce_scatter": rows // n}.get(kind, rows)
    got = fresh((made, columns), np.dtype(np.float32))
    got[...] = 0
    copy = np.empty_like(given)
    send, receive = given.reshape(-1), got.reshape(-1)
    calls: dict[str, Way] = {
        "allreduce": lambda: mpi.allreduce(send, receive, "sum"),
        "reduce_scatter": lambda: mpi.reduce_scatter(send, receive, "sum"),
        "allgather": lambda: mpi.allgather(as_bytes(given), as_bytes(got)),
        "alltoall": lambda: mpi.alltoall(as_bytes(given), as_bytes(got)),
    }
    ways: dict[str, Way] = {
        "ours": native.prepared(_COLLECTIVES[kind], world, given, got),
        "mpich": calls[kind],
        "memcpy": lambda: np.copyto(copy, given),
    }
    if kind == "allreduce":  # the operator writes over its input if no other operator reads it
        place = np.zeros_like(given)
        ways["ours_in_place"] = native.prepared(_COLLECTIVES[kind], world, place, place)
    if kind == "allreduce" and importlib.util.find_spec("horovod") is not None:
        ways["horovod"] = _horovod(given)
    for way in ("ours", "mpich"):  # both ways give the same result
        ways[way]()
        right = n if kind in ("allreduce", "reduce_scatter") else 1
        np.testing.assert_array_equal(got, right)
        got[...] = 0
    return ways


def _horovod(given: npt.NDArray[np.float32]) -> Way:
    """Horovod's all-reduce of a tensor."""
    import horovod.tensorflow as hvd

    hvd.init()
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        value = tf.compat.v1.get_variable("value", initializer=given, use_resource=True)
        summed = hvd.allreduce(value.read_value(), op=hvd.Sum).op
        session.run(value.initializer)
    run: Way = session.make_callable(summed)
    return run


def _medians(world: Group, ways: Mapping[str, Way], calls_in: int = 1) -> dict[str, float]:
    """Milliseconds of a call for each way; ``calls_in`` has the number of calls that a way
    makes."""
    repeats = {}
    for name, way in ways.items():
        way()
        alone = _turn(world, way, 1)
        repeats[name] = max(1, min(1000, int(_TURN_SECONDS / alone)))
    turns: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_TURNS):
        for name, way in ways.items():
            turns[name].append(_turn(world, way, repeats[name]) / calls_in)
    return {name: float(np.median(found)) * 1e3 for name, found in turns.items()}


def _turn(world: Group, way: Way, repeats: int) -> float:
    """Seconds of a call on the slowest rank."""
    world.barrier()
    started = time.perf_counter()
    for _ in range(repeats):
        way()
    own = (time.perf_counter() - started) / repeats
    return max(float(world.allreduce(np.array([own]), "max")[0]), 1e-9)


def _in_graph(size: int, world: Group, native: NativeTransport) -> dict[str, float]:
    """All-reduces in a graph: by the native operator, and by host calls of MPI."""
    chain = max(1, min(_LONGEST_CHAIN, _CHAIN_BYTES // size))
    ways: dict[str, Way] = {}
    sessions = []
    for name, transport in (("ours", native), ("host_call", None)):
        with tf.Graph().as_default() as graph, collectives.Sequence():
            value = tf.compat.v1.get_variable(
                "value", [size // 4], initializer=tf.zeros_initializer(), use_resource=True
            )
            tensor = value.read_value() + 1.0
            call = CollectiveCall(Allreduce(), (world,))
            for _ in range(chain):
                (tensor,) = on_tensors([tensor], [call], tensor.shape, name, transport=transport)
            session = tf.compat.v1.Session(graph=graph)
            session.run(value.initializer)
        sessions.append(session)
        ways[name] = session.make_callable(tensor.op)
    found = _medians(world, ways, chain)
    for session in sessions:
        session.close()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[-1]), sys.argv[1].split(","), [int(size) for size in sys.argv[2:-1]])
