"""Groups of ranks and the collectives between them, on NumPy arrays."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from collectives.buffers import Array, Bytes, dimension
from collectives.errors import GroupError
from collectives.facts import JobFacts, RankFacts, usable_cores
from collectives.operations import messages
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.broadcast import Broadcast
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective, Finish
from collectives.transport import Transport
from collectives.transport.in_process import InProcessTransport
from collectives.transport.launch import detect, refuse_single_ranks
from collectives.windows import MemberWindows

__all__ = ["Group", "job_facts", "world"]


class Group:
    """An ordered tuple of ranks that communicate, as one of them sees it; see `world`.

    All members call the same collectives in the same order, with the same arguments and with arrays
    of the same shape and dtype. A group does not check this rule. `collectives.Sequence` records
    the calls, and ranks compare the records before the first step. A message concerns two members
    only. The classes of `collectives.operations.kinds` describe the collectives. Shards are in the
    group's order.

    Args:
        transport: carries the bytes between the members.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of the members, in the group's order."""
        return self._transport.ranks

    @property
    def rank(self) -> int:
        """Position of this rank in the group."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self._transport.ranks)

    def __repr__(self) -> str:
        return f"Group({','.join(map(str, self.ranks))})"

    # Groups within groups

    def subgroup(self, ranks: Sequence[int]) -> Group:
        """The group of these world ranks, in this order.

        Each of these ranks calls, and no other rank. Ranks that are in several groups make them in
        the same order.

        Raises:
            GroupError: if a rank is repeated or not in this group, or if this rank is missing.
        """
        chosen = tuple(int(rank) for rank in ranks)
        self._check_members(chosen)
        if self.ranks[self.rank] not in chosen:
            raise GroupError(
                "a rank makes only groups that it is in. Got a group of ranks "
                f"{list(chosen)} on rank {self.ranks[self.rank]}: let its members make it."
            )
        return Group(self._transport.subgroup(chosen))

    def split(self, partition: Sequence[Sequence[int]]) -> Group:
        """The group of ``partition`` that has this rank.

        Raises:
            GroupError: if the groups do not divide this group into groups of one size.
        """
        groups = tuple(tuple(int(rank) for rank in ranks) for ranks in partition)
        all_ranks = tuple(rank for ranks in groups for rank in ranks)
        self._check_members(all_ranks)
        if len(all_ranks) != self.size or len({len(ranks) for ranks in groups}) != 1:
            raise GroupError(
                f"a partition has every rank of {list(self.ranks)} in one of its groups, and all "
                f"groups have one size. Got {[list(ranks) for ranks in groups]}."
            )
        members = next(ranks for ranks in groups if self.ranks[self.rank] in ranks)
        return Group(self._transport.subgroup(members))

    def _check_members(self, ranks: tuple[int, ...]) -> None:
        if not ranks or len(set(ranks)) != len(ranks) or not set(ranks) <= set(self.ranks):
            raise GroupError(
                f"a group has one or more different ranks of {list(self.ranks)}. Got {list(ranks)}."
            )

    # Collectives

    def start(self, collective: Collective, array: Array) -> Finish:
        """Start a collective. After `wait`, the returned function gives the result."""
        return collective.start(self._transport, array)

    def wait(self) -> None:
        """Wait until the collective that was started last is done."""
        self._transport.wait()

    def run(self, collective: Collective, array: Array) -> Array:
        """Run a collective and return its result."""
        finish = self.start(collective, array)
        self.wait()
        return finish()

    def allreduce(self, array: Array, reducer: str = "sum") -> Array:
        """See `Allreduce`."""
        return self.run(Allreduce(reducer), array)

    def allgather(self, array: Array, dim: int = 0) -> Array:
        """See `Allgather`."""
        return self.run(Allgather(dim), array)

    def reduce_scatter(self, array: Array, dim: int = 0, reducer: str = "sum") -> Array:
        """See `ReduceScatter`."""
        return self.run(ReduceScatter(dim, reducer), array)

    def alltoall(self, array: Array, split_dim: int, concat_dim: int) -> Array:
        """See `Alltoall`."""
        return self.run(Alltoall(split_dim, concat_dim), array)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """See `Broadcast`."""
        return self.run(Broadcast(root), array)

    def exchange(
        self, array: Array, dim: int, starts: Sequence[int], length: int, fill: float = 0
    ) -> Array:
        """This member's window of all arrays joined along ``dim``: its own array with a halo.

        The window of member i has the ``length`` elements of the joined array from ``starts[i]``
        on. Elements beyond the ends of the joined array are ``fill``. Each member gives all starts.

        Raises:
            ShapeError: if the dimension does not exist, or if there is not one start per member.
            DTypeError: if the elements are Python objects.
        """
        dim = dimension(dim, array.ndim)
        windows = MemberWindows.of_group(starts, length, array.shape[dim], self.size)
        return self.run(Exchange(dim, windows, fill), array)

    def exchange_sum(self, array: Array, dim: int, starts: Sequence[int], extent: int) -> Array:
        """This member's shard of the sum of all members' windows, the transpose of `exchange`.

        ``array`` is this member's window. A shard has ``extent`` elements along ``dim``.

        Raises:
            ShapeError: see `exchange`.
            DTypeError: if the elements cannot be added.
        """
        dim = dimension(dim, array.ndim)
        windows = MemberWindows.of_group(starts, array.shape[dim], extent, self.size)
        return self.run(ExchangeSum(dim, windows), array)

    # Messages

    def check_messages(self) -> None:
        """Check that members can send messages; called before the first message.

        Raises:
            TransportError: if they cannot.
        """
        self._transport.check_messages()

    def send(self, array: Array, target: int, tag: int = 0) -> None:
        """Send an array to one member; see `collectives.operations.messages.send`."""
        messages.send(self._transport, array, target, tag)

    def receive(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], source: int, tag: int = 0
    ) -> Array:
        """Receive an array from one member; see `collectives.operations.messages.receive`."""
        return messages.receive(self._transport, shape, dtype, source, tag)

    # The job

    def gather_short_by(self, gather: Callable[[Bytes, Bytes], bool]) -> None:
        """Gather short messages otherwise; see `Transport.gather_short_by`."""
        self._transport.gather_short_by(gather)

    def allgather_object(self, value: Any) -> list[Any]:
        """The values of all members, in the group's order.

        Values travel as JSON, so tuples become lists and keys become strings, also in a group of
        one.
        """
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = self.allgather(np.array([data.size], np.int64))
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: data.size] = data
        rows = self.allgather(padded).reshape(self.size, -1)
        return [
            json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes.tolist(), strict=True)
        ]

    def barrier(self) -> None:
        """Wait until every member has called."""
        if self.size > 1:
            self._transport.barrier()

    def abort(self, code: int = 1) -> NoReturn:
        """End all processes of the job, also those outside the group; callable from any thread."""
        self._transport.abort(code)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Name of the machine of each member, in the group's order."""
        return self._transport.hosts

    @property
    def host(self) -> str:
        """Name of the machine of this process."""
        return self.hosts[self.rank]

    @property
    def library(self) -> str:
        """Name and version of the MPI library; empty for a job of one process."""
        return self._transport.library

    def local_rank(self) -> int:
        """Position of this process among the members on its machine."""
        return self.hosts[: self.rank].count(self.host)

    def local_size(self) -> int:
        """Number of members on the machine of this process."""
        return self.hosts.count(self.host)


_world: Group | None = None
_facts: JobFacts | None = None
_world_lock = threading.Lock()


def world() -> Group:
    """The group of all processes of the job.

    The first call makes it; all processes make that call. If a launcher (mpirun, srun) started this
    process, the group is MPI's world, otherwise this process alone, without MPI. The environment
    variable ``COLLECTIVES_TRANSPORT`` overrules this with ``mpi`` or ``single``. A rank that starts
    another program sets ``single`` for it, because the program inherits the launcher's variables.

    Raises:
        TransportError: if MPI is needed and cannot be used, or if a launcher without MPI has
            started this process as one of several.
    """
    global _world, _facts
    with _world_lock:
        if _world is None:
            launch = detect()
            if launch is None:
                refuse_single_ranks()
                _world = Group(InProcessTransport())
            else:
                from collectives.transport.mpi import connect

                _world = Group(connect(launch))
            everyone = _world.allgather_object(usable_cores())
            _facts = JobFacts(
                tuple(
                    RankFacts(host, frozenset(cores))
                    for host, cores in zip(_world.hosts, everyone, strict=True)
                )
            )
        return _world


def job_facts() -> JobFacts:
    """Return the facts of all processes of the job, which they exchange when `world` makes their
    group."""
    world()
    assert _facts is not None, "`world` sets the facts with the group"
    return _facts
