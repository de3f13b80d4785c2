"""Groups of ranks and the collectives between them, on NumPy arrays."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from collectives.buffers import Array, dimension
from collectives.errors import GroupError
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
from collectives.transport.launch import detect
from collectives.windows import Windows

__all__ = ["Group", "world"]


class Group:
    """An ordered tuple of ranks that communicate, as one of them sees it; see `world`.

    Every member calls the same collective with the same arguments and arrays of the same shape
    and dtype, in the same order: nothing checks that here (`collectives.Sequence` does, once,
    before the first step). Messages alone are for two members. What a collective does is said by
    its class in `collectives.operations`; shards come in the group's order, position 0 first.

    Args:
        transport: what carries the bytes between the members.
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

        Only they call, each of them, and in the same order where there are several groups.

        Raises:
            GroupError: if a rank is repeated or not in this group, or this rank is not named.
        """
        chosen = tuple(int(rank) for rank in ranks)
        self._check_members(chosen)
        if self.ranks[self.rank] not in chosen:
            raise GroupError(
                "a rank makes the groups that it is in. Got a group of ranks "
                f"{list(chosen)} on rank {self.ranks[self.rank]}: let its members make it."
            )
        return Group(self._transport.subgroup(chosen))

    def split(self, partition: Sequence[Sequence[int]]) -> Group:
        """The group with this rank in it, of groups that split all of this one between them.

        Raises:
            GroupError: if the groups are not a partition of this one into groups of one size.
        """
        groups = tuple(tuple(int(rank) for rank in ranks) for ranks in partition)
        everyone = tuple(rank for ranks in groups for rank in ranks)
        self._check_members(everyone)
        if len(everyone) != self.size or len({len(ranks) for ranks in groups}) != 1:
            raise GroupError(
                f"a partition has every rank of {list(self.ranks)} in one of its groups, and "
                f"groups of one size. Got {[list(ranks) for ranks in groups]}."
            )
        own = next(ranks for ranks in groups if self.ranks[self.rank] in ranks)
        return Group(self._transport.subgroup(own))

    def _check_members(self, ranks: tuple[int, ...]) -> None:
        if not ranks or len(set(ranks)) != len(ranks) or not set(ranks) <= set(self.ranks):
            raise GroupError(
                f"a group has one or more different ranks of {list(self.ranks)}. Got {list(ranks)}."
            )

    # Collectives

    def start(self, collective: Collective, array: Array) -> Finish:
        """The first half of a collective; the second is what it returns, after `wait`."""
        return collective.start(self._transport, array)

    def wait(self) -> None:
        """Returns once the collective that was started last is done."""
        self._transport.wait()

    def run(self, collective: Collective, array: Array) -> Array:
        """Both halves of a collective."""
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
        """This member's window of all arrays joined along ``dim``: its own and a halo.

        Member i's window begins at element ``starts[i]`` of the whole and has ``length``
        elements; those beyond the ends of the whole are ``fill``. All members give all starts.

        Raises:
            ShapeError: if there is no such dimension, or not one start per member.
            DTypeError: if the elements are Python objects.
        """
        dim = dimension(dim, array.ndim)
        windows = Windows.of_group(starts, length, array.shape[dim], self.size)
        return self.run(Exchange(dim, windows, fill), array)

    def exchange_sum(self, array: Array, dim: int, starts: Sequence[int], extent: int) -> Array:
        """The way back of `exchange`: this member's shard of the sum of all windows.

        Each member gives its window; a shard has ``extent`` elements along ``dim``.

        Raises:
            ShapeError: see `exchange`.
            DTypeError: if the elements do not add up.
        """
        dim = dimension(dim, array.ndim)
        windows = Windows.of_group(starts, array.shape[dim], extent, self.size)
        return self.run(ExchangeSum(dim, windows), array)

    # Messages

    def check_messages(self) -> None:
        """Whether members can send messages, before the first.

        Raises:
            TransportError: if not.
        """
        self._transport.check_messages()

    def send(self, array: Array, target: int, tag: int = 0) -> None:
        """Send to one member, which receives; see `collectives.operations.messages.send`."""
        messages.send(self._transport, array, target, tag)

    def receive(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], source: int, tag: int = 0
    ) -> Array:
        """What one member sends; see `collectives.operations.messages.receive`."""
        return messages.receive(self._transport, shape, dtype, source, tag)

    # The job

    def allgather_object(self, value: Any) -> list[Any]:
        """Every member's value, in the group's order. The value is one that JSON can hold.

        It travels as JSON, so tuples come back as lists and keys as strings, on every size.
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
        """Returns once every member has called."""
        if self.size > 1:
            self._transport.barrier()

    def abort(self, code: int = 1) -> NoReturn:
        """Ends every process of the job, members or not; callable from any thread."""
        self._transport.abort(code)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Name of the machine of every member, in the group's order."""
        return self._transport.hosts

    @property
    def host(self) -> str:
        """Name of the machine of this process."""
        return self.hosts[self.rank]

    @property
    def library(self) -> str:
        """Name and version of what carries the bytes; empty for a process alone."""
        return self._transport.library

    def local_rank(self) -> int:
        """Position of this process among the members on its machine."""
        return self.hosts[: self.rank].count(self.host)

    def local_size(self) -> int:
        """Number of members on the machine of this process."""
        return self.hosts.count(self.host)


_world: Group | None = None
_world_lock = threading.Lock()


def world() -> Group:
    """The group of all processes of the job, made at the first call, which all of them make.

    That is MPI's world where a launcher (mpirun, srun) started this process, else this process
    alone, without MPI. ``COLLECTIVES_TRANSPORT`` set to ``mpi`` or ``single`` decides otherwise;
    a rank that starts a program of its own sets ``single`` for it, which inherits the rest.

    Raises:
        TransportError: if MPI is needed and cannot be used.
    """
    global _world
    with _world_lock:
        if _world is None:
            launch = detect()
            if launch is None:
                _world = Group(InProcessTransport())
            else:
                from collectives.transport.mpi import connect

                _world = Group(connect(launch))
        return _world
