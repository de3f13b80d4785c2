"""Collectives on tensors by an operator in C++: which it knows, and whether all ranks have it."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.buffers import Bytes, dimension
from collectives.errors import CollectiveError, NativeError, TransportError
from collectives.group import Group, job_facts
from collectives.native.build import library
from collectives.native.network import open_network
from collectives.native.noted_calls import NotedCall, noted, noted_call
from collectives.native.transport_library import BEFORE, NOTE, SOURCES, loaded
from collectives.native.window import BYPASS_BELOW, chunk_bytes, shared_memory
from collectives.operations.calls import Watch
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.reduction import wire
from collectives.watchdog import Wait, watchdog

__all__ = ["SWITCH", "NativeTransport", "knows", "native_transport", "spin_seconds"]

SWITCH = "COLLECTIVES_NATIVE"
"""Environment variable: 0 for collectives in Python; 1 or unset for collectives in C++ where they
are available."""

_SPIN_SECONDS = 1e-4
"""Time that a waiting rank spins before it sleeps: twice the time of waking a thread in a
virtual machine. Ranks that share cores do not spin, because the rank waited for needs the core."""
_NOTES = 1 << 10
"""Times of calls that Python takes from C++ at once."""
LEAST_READ = 1 << 15
"""From this size in bytes on, a rank reads the data of another rank directly from its memory, if
the system allows that. Smaller data goes through the shared memory."""
_DTYPES = frozenset(
    {tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.bool}
    | {tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64}
)


class NativeTransport:
    """See `collectives.operations.calls.TensorTransport`; `native_transport` makes them.

    Args:
        group: all ranks that have one.
        path: the library.
        memory: what this machine's ranks share.
        processes: of this machine's ranks, where each may read the others' memory; else empty.
        network: number of the network of all ranks; None if they are on one machine, or MPI carries
            collectives between machines.
    """

    is_stateful = True

    def __init__(
        self,
        group: Group,
        path: Path,
        memory: mmap.mmap,
        processes: Sequence[int],
        network: int | None = None,
    ) -> None:
        self._operators, self._library = loaded(path)
        local = [r for r, host in zip(group.ranks, group.hosts, strict=True) if host == group.host]
        self._places = {rank: place for place, rank in enumerate(local)}
        self._network = network
        self._network_places = {rank: place for place, rank in enumerate(group.ranks)}
        self._memory = memory  # for as long as the process may use it
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        facts = job_facts()
        self.overlaps = facts.overlaps
        self._window = self._library.collectives_open(
            base,
            group.local_rank(),
            len(local),
            chunk_bytes(len(local)),
            spin_seconds(group),
            facts.shares_cores(local),
            (ctypes.c_int * len(processes))(*processes) if processes else None,
            LEAST_READ,
            BYPASS_BELOW,
        )
        self._asks = BEFORE(self._before)  # C keeps no reference
        self._notes = np.empty(_NOTES, NOTE)
        watchdog().add(self._running)
        if network is not None:
            watchdog().add(self._running_in_network)

    @property
    def has_network(self) -> bool:
        """Whether collectives between machines run beside computation, by the network's thread."""
        return self._network is not None

    @property
    def seconds(self) -> float:
        """See `TensorTransport.seconds`."""
        return float(self._library.collectives_seconds())

    def carries(self, collective: Collective, group: Group, dtype: tf.DType) -> bool:
        """Whether the operator knows collective and elements, and the group is on one machine or
        the ranks have a network."""
        return knows(collective, dtype) and (self._is_local(group) or self.starts(group))

    def starts(self, group: Group) -> bool:
        """See `TensorTransport.starts`: true of a group on several machines with a network."""
        return self._network is not None and not self._is_local(group)

    def _is_local(self, group: Group) -> bool:
        return set(group.ranks) <= set(self._places)

    def overtakes(self, collective: Collective, dtype: tf.DType) -> bool:
        """Never: members run collectives in one order."""
        del collective, dtype
        return False

    def move(
        self, collective: Collective, group: Group, tensor: tf.Tensor, record: str, watch: Watch
    ) -> tf.Tensor:
        """The collective as an operator of the default graph."""
        call = self._call(group, record, watch)
        moved = self._operators.collectives_move(
            value=tensor, **call, **_attributes(collective, group, tensor)
        )
        return self._awaited([moved], call)[0]

    def carries_joined(self, collective: Collective, group: Group, dtype: tf.DType) -> bool:
        """Whether `move_joined` has an operator; the same answer on every member."""
        return isinstance(collective, Allreduce) and self.carries(collective, group, dtype)

    def move_joined(
        self,
        collective: Collective,
        group: Group,
        tensors: Sequence[tf.Tensor],
        record: str,
        watch: Watch,
    ) -> list[tf.Tensor]:
        """All-reduces of several tensors of one dtype as one operator of the default graph."""
        assert isinstance(collective, Allreduce), "`carries_joined` says which there are"
        call = self._call(group, record, watch)
        as_bfloat16 = collective.as_bfloat16 and tensors[0].dtype == tf.float32
        moved = self._operators.collectives_allreduce(
            values=list(tensors), reducer=collective.reducer, as_bfloat16=as_bfloat16, **call
        )
        return self._awaited(moved, call)

    def _awaited(self, started: list[tf.Tensor], call: dict[str, Any]) -> list[tf.Tensor]:
        """The results of an operator, which has only started them if the network carries them."""
        if call["network"] < 0:
            return started
        results: list[tf.Tensor] = self._operators.collectives_wait(
            started=started, network=call["network"], call=call["call"], name="wait"
        )
        return results

    def _call(self, group: Group, record: str, watch: Watch) -> dict[str, Any]:
        """Attributes of an operator, which is noted as the one of its number."""
        number = noted(NotedCall(watch, record, group.ranks))
        network, members = self._members(group)
        return {
            "window": self._window,
            "network": network,
            "call": number,
            "overlaps": self.overlaps,
            "members": members,
            "place": group.rank,
            "name": "reshard",
        }

    def _members(self, group: Group) -> tuple[int, list[int]]:
        """The network of a group's collectives, or -1, and the ranks' numbers there."""
        if self._network is not None and self.starts(group):
            return self._network, [self._network_places[rank] for rank in group.ranks]
        return -1, [self._places[rank] for rank in group.ranks]

    def watch(self, is_on: bool, asks: bool = False) -> None:
        """See `TensorTransport.watch`."""
        self.tell()
        self._library.collectives_observe(is_on, self._asks if asks else BEFORE())

    def tell(self) -> None:
        """See `TensorTransport.tell`."""
        count = _NOTES
        while count == _NOTES:
            count = self._library.collectives_take_notes(self._notes.ctypes.data, _NOTES)
            for number, started, ended, worked in self._notes[:count].tolist():
                call = noted_call(number)  # of any transport: they note in one place
                if call is not None:
                    call.watch.after(started, ended, worked)

    def prepared(
        self,
        collective: Collective,
        group: Group,
        array: np.ndarray[Any, Any],
        out: np.ndarray[Any, Any],
    ) -> Callable[[], float]:
        """A collective of float32[rows, columns] outside of a graph: to measure. It
        returns the seconds of a processor that it had.

        Args:
            collective: one that it carries, and no `ExchangeSum`; a reduction is a sum.
            group: ranks of this machine, or of several with a network.
            array, out: contiguous, ``out`` as large as the result at least; for an all-reduce they
                may be one.
        """
        spec = tf.TensorSpec(array.shape, tf.float32)
        found = _attributes(collective, group, spec)
        ranges = [*found.get("sent", ()), *found.get("received", ())]
        network, members = self._members(group)
        reason = ctypes.create_string_buffer(512)
        run = functools.partial(
            self._library.collectives_run,
            self._window,
            network,
            found["kind"].encode(),
            (ctypes.c_int * group.size)(*members),
            *(group.size, group.rank, *array.shape),
            *(found.get("split_dim", 0), found.get("join_dim", 0)),
            (ctypes.c_int64 * len(ranges))(*ranges),
            *(found.get("most_rows", 0), found.get("extent", 0)),
            *(each.ctypes.data_as(ctypes.c_void_p) for each in (array, out)),  # which keep them
            *(reason, len(reason)),
        )

        def timed() -> float:
            seconds: float = run()
            if reason.value:
                raise TransportError(
                    "a collective that is measured ends on every rank. Got: "
                    f"{reason.value.decode()}. Start the job again."
                )
            return seconds

        return timed

    def _running(self) -> Wait | None:
        since = ctypes.c_double()
        return self._wait(
            self._library.collectives_running(self._window, ctypes.byref(since)), since
        )

    def _running_in_network(self) -> Wait | None:
        since = ctypes.c_double()
        running = self._library.collectives_network_running(self._network, ctypes.byref(since))
        return self._wait(running, since)

    def _wait(self, number: int, since: ctypes.c_double) -> Wait | None:
        call = noted_call(number)
        return None if call is None else Wait(call.record, call.ranks, since.value)

    def _before(self, number: int, reason: int, size: int) -> int:
        call = noted_call(number)
        if call is None:
            return 0
        try:
            call.watch.before(None)
        except Exception as error:  # the operator fails with its text
            text = f"{type(error).__name__}: {error}".encode()[: size - 1]
            ctypes.memmove(reason, text + b"\0", len(text) + 1)
            return 1
        return 0


def spin_seconds(group: Group) -> float:
    """Return the time for which this rank of a group spins before it sleeps."""
    return _SPIN_SECONDS if job_facts().has_core(group.ranks[group.rank]) else 0.0


def knows(collective: Collective, dtype: tf.DType) -> bool:
    """Whether there is an operator of a collective for elements of this type."""
    if dtype not in _DTYPES:
        return False
    if isinstance(collective, (Allreduce, ReduceScatter)):
        return _reduces(dtype, collective.reducer)
    return isinstance(collective, (Allgather, Alltoall, Exchange, ExchangeSum))


def _reduces(dtype: tf.DType, reducer: str) -> bool:
    try:
        wire(np.dtype(dtype.as_numpy_dtype), reducer)
    except CollectiveError:  # which the host call raises when it runs
        return False
    return True


def _attributes(collective: Collective, group: Group, tensor: tf.Tensor) -> dict[str, Any]:
    """The attributes of the operator for a collective; see `operator.cc` and `definition.h`."""
    rank = tensor.shape.rank
    match collective:
        case Allreduce(reducer):
            as_bfloat16 = collective.as_bfloat16 and tensor.dtype == tf.float32
            return {"kind": "allreduce", "reducer": reducer, "as_bfloat16": as_bfloat16}
        case ReduceScatter(dim, reducer):
            split_dim = dimension(dim, rank)
            return {"kind": "reduce_scatter", "reducer": reducer, "split_dim": split_dim}
        case Allgather(dim):
            return {"kind": "allgather", "join_dim": dimension(dim, rank)}
        case Alltoall(split_dim, concat_dim):
            split_dim, join_dim = dimension(split_dim, rank), dimension(concat_dim, rank)
            return {"kind": "alltoall", "split_dim": split_dim, "join_dim": join_dim}
        case Exchange(dim, windows) | ExchangeSum(dim, windows):
            pass
        case _:
            raise TypeError(f"`carries` says which collectives there are. Got {collective}.")
    me, members = group.rank, range(group.size)
    seen = [windows.in_shard(member, me) for member in members]
    placed = [windows.in_window(me, member) for member in members]
    pairs = [(window, shard) for window in members for shard in members if window != shard]
    found = {
        "split_dim": dim,
        "most_rows": max((len(windows.overlap(*pair)) for pair in pairs), default=0),
    }
    if isinstance(collective, Exchange):
        fill = np.full((), collective.fill, tensor.dtype.as_numpy_dtype).tobytes()
        ways = {"sent": _rows(seen), "received": _rows(placed), "fill": fill}
        extents = {"rows": windows.extent, "extent": windows.length}
        return {"kind": "exchange", **found, **ways, **extents}
    # The way back: what lies in my window goes to its owners.
    ways = {"sent": _rows(placed), "received": _rows(seen)}
    extents = {"rows": windows.length, "extent": windows.extent}
    return {"kind": "exchange_sum", **found, **ways, **extents}


def _rows(slices: list[slice]) -> list[int]:
    return [int(end) for each in slices for end in (each.start, each.stop)]


_transports: dict[tuple[tuple[int, ...], tuple[str, ...]], NativeTransport | None] = {}


def native_transport(group: Group) -> NativeTransport | None:
    """The native transport of these ranks, or None where one of them cannot have it.

    Every member calls, at the same point. The first call of a process may compile, for some
    seconds; where that fails, the first rank says why and what helps.

    Raises:
        TransportError: on every member, if ``COLLECTIVES_NATIVE`` is neither 0 nor 1 on one.
    """
    if group.size == 1:
        return None
    key = group.ranks, group.hosts
    if key not in _transports:
        _transports[key] = _agreed(group)
    return _transports[key]


def _agreed(group: Group) -> NativeTransport | None:
    path, problem = None, ""
    switch = os.environ.get(SWITCH, "")
    if switch in ("", "1"):
        try:
            path = library("collectives", SOURCES)
            loaded(path)
        except NativeError as error:
            problem = str(error)
    said = group.allgather_object([switch, problem])
    for rank, (value, _) in zip(group.ranks, said, strict=True):
        if value not in ("", "0", "1"):
            raise TransportError(
                f"{SWITCH} is 0 for collectives in Python, or 1 or not set for those in C++. Got "
                f"{value!r} on rank {rank}."
            )
    if any(value == "0" for value, _ in said):
        return None
    problem = next((each for _, each in said if each), "")
    memory, ranks = None, group.local_size()
    if not problem:
        assert path is not None, "each rank has a library or a problem"
        functions = loaded(path)[1]
        board_at = functions.collectives_window_bytes(ranks, chunk_bytes(ranks))
        size = board_at + functions.collectives_board_bytes(ranks)
        memory, problem, file = shared_memory(group, size, size)
        if file >= 0:  # the mapping keeps the memory
            os.close(file)
    if memory is None or path is None:
        if group.rank == 0:
            sys.stderr.write(
                "collectives: collectives run in Python, and steps are slower than with those in "
                f"C++, which could not be had. Got {problem}\n{SWITCH}=0 chooses Python without "
                "this note.\n"
            )
        return None
    processes = _processes(group, path)
    spans_machines = len(set(group.hosts)) > 1
    network = None
    if not spans_machines:
        group.gather_short_by(_board(group, functions, memory, board_at))
    else:
        opened = functions.collectives_network_open
        network = open_network(group, functions.collectives_addresses, opened)
    return NativeTransport(group, path, memory, processes, network)


def _board(
    group: Group, functions: ctypes.CDLL, memory: mmap.mmap, offset: int
) -> Callable[[Bytes, Bytes], bool]:
    """Return the function that gathers short messages of a group on one machine.

    A rank that waits for the last message sleeps. In MPI it would hold its core.
    """
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory, offset))
    board = functions.collectives_board_open(base, group.rank, group.size, spin_seconds(group))

    def gather(send: Bytes, receive: Bytes) -> bool:
        _ = memory  # which lives as long as the function
        return bool(
            functions.collectives_board_gather(
                board, send.ctypes.data, send.nbytes, receive.ctypes.data
            )
        )

    return gather


def _processes(group: Group, path: Path) -> list[int]:
    """Return the processes of this machine's ranks; none if one may not read another's memory.

    A container, or the system's settings, may forbid it. Only if a rank may not read as things are,
    its machine's ranks ask for the permission. Every member calls.
    """
    functions = loaded(path)[1]
    processes, is_allowed = _readable(group, functions)
    if not is_allowed:
        if not processes:
            functions.collectives_let_read()
        processes, _ = _readable(group, functions)
    return processes


def _readable(group: Group, functions: ctypes.CDLL) -> tuple[list[int], bool]:
    """Return the processes of this machine's ranks, none if one may not read another's memory, and
    whether all ranks may on all machines."""
    token = secrets.token_hex(16)  # another process may have the number, seen from a container
    buffer = ctypes.create_string_buffer(token.encode())
    said = group.allgather_object((os.getpid(), ctypes.addressof(buffer), token))
    local = [each for each, host in zip(said, group.hosts, strict=True) if host == group.host]
    may = all(
        functions.collectives_reads(process, there, bytes_there.encode(), len(token))
        for process, there, bytes_there in local
    )
    answers = group.allgather_object(may)  # the buffer must exist until then
    here = all(
        answer for answer, host in zip(answers, group.hosts, strict=True) if host == group.host
    )
    return [process for process, _, _ in local] if here else [], all(answers)
