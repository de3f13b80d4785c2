"""Groups of processes and the collectives between them, on NumPy arrays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from collectives.buffers import (
    Array,
    as_bytes,
    check_movable,
    contiguous,
    dimension,
    fresh,
    fresh_copy,
    join,
    split,
)
from collectives.errors import GroupError
from collectives.reduction import wire
from collectives.transport import Transport
from collectives.transport.launch import detect
from collectives.transport.single import SingleTransport
from collectives.windows import Windows

__all__ = ["Group", "world"]


class Group:
    """An ordered tuple of processes that communicate; get one from `world`.

    Every member calls the same collective with the same arguments and arrays of the same shape
    and dtype, in the same order: nothing checks that here (`collectives.Sequence` does, once,
    before the first step). No collective writes to its input, which may be of any strides and of
    size zero. Each returns a fresh contiguous array that starts at a multiple of 64 bytes, and
    in it pieces come in the group's order, position 0 first. ``dim`` may count from the end.

    Args:
        transport: what carries the bytes between the members.
        partition: all groups of which this is one, where several split a larger group between
            them. All those communicate at the same time, so all have the same `label`.
    """

    def __init__(
        self, transport: Transport, partition: tuple[tuple[int, ...], ...] | None = None
    ) -> None:
        self._transport = transport
        self._partition = partition or (transport.ranks,)

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of the members, in the group's order."""
        return self._transport.ranks

    @property
    def rank(self) -> int:
        """Position of this process in the group."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self._transport.ranks)

    @property
    def label(self) -> str:
        """``0,1``, or all groups of the partition: ``0,1|2,3``."""
        return "|".join(",".join(map(str, ranks)) for ranks in self._partition)

    def __repr__(self) -> str:
        return f"Group({','.join(map(str, self.ranks))})"

    # Groups within groups

    def subgroup(self, ranks: Sequence[int]) -> Group:
        """The group of these world ranks, in this order.

        Only they call, each of them, and in the same order where there are several groups.

        Raises:
            GroupError: if a rank is repeated or not in this group, or this process is not named.
        """
        chosen = tuple(int(rank) for rank in ranks)
        self._check_members(chosen)
        if self.ranks[self.rank] not in chosen:
            raise GroupError(
                "a process makes the groups that it is in. Got a group of ranks "
                f"{list(chosen)} on rank {self.ranks[self.rank]}: let its members make it."
            )
        return Group(self._transport.subgroup(chosen))

    def split(self, partition: Sequence[Sequence[int]]) -> Group:
        """The group with this process in it, of groups that split all of this one between them.

        It differs from `subgroup` in its `label`, which is the same on every process, so that
        the records of a `collectives.Sequence` can be compared between processes.

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
        return Group(self._transport.subgroup(own), groups)

    def _check_members(self, ranks: tuple[int, ...]) -> None:
        if not ranks or len(set(ranks)) != len(ranks) or not set(ranks) <= set(self.ranks):
            raise GroupError(
                f"a group has one or more different ranks of {list(self.ranks)}. Got {list(ranks)}."
            )

    def check_position(self, root: int) -> None:
        """Raises GroupError if ``root`` is not a position in the group."""
        if not 0 <= root < self.size:
            raise GroupError(
                f"a root is a position in the group, from 0 to {self.size - 1}. Got {root}."
            )

    # Collectives on arrays

    def allreduce(self, array: Array, reducer: str = "sum") -> Array:
        """The element-by-element reduction of every member's array; same shape and dtype.

        ``reducer`` is sum, max, min or prod. Half precision is reduced in float32; of booleans
        sum and max are logical or, min and prod logical and.

        Raises:
            ReducerError: if the reducer is unknown.
            DTypeError: if the elements do not reduce with it.
        """
        way = wire(array.dtype, reducer)
        if self.size == 1 or array.size == 0:
            return fresh_copy(array)
        send = contiguous(array, way.dtype)
        result = fresh(array.shape, way.dtype)
        self._transport.allreduce(send.reshape(-1), result.reshape(-1), way.reducer)
        return _restored(result, array.dtype)

    def allgather(self, array: Array, dim: int = 0) -> Array:
        """Every member's array, concatenated along ``dim``.

        Raises:
            ShapeError: if there is no such dimension.
            DTypeError: if the elements are Python objects.
        """
        dim = dimension(dim, array.ndim)
        check_movable(array.dtype)
        if self.size == 1 or array.size == 0:
            return self._empty_or_copy(array, dim)
        pieces = fresh((self.size, *array.shape), array.dtype)
        self._transport.allgather(as_bytes(contiguous(array)), as_bytes(pieces))
        return join(pieces, dim)

    def reduce_scatter(self, array: Array, dim: int = 0, reducer: str = "sum") -> Array:
        """This member's piece along ``dim`` of what `allreduce` would return.

        Raises:
            ShapeError: if there is no such dimension, or it does not divide by the group's size.
            ReducerError: if the reducer is unknown.
            DTypeError: if the elements do not reduce with it.
        """
        way = wire(array.dtype, reducer)
        pieces = split(array, dimension(dim, array.ndim), self.size)
        if self.size == 1 or array.size == 0:
            return fresh_copy(pieces[0])
        send = contiguous(pieces, way.dtype)
        result = fresh(pieces.shape[1:], way.dtype)
        self._transport.reduce_scatter(send.reshape(-1), result.reshape(-1), way.reducer)
        return _restored(result, array.dtype)

    def alltoall(self, array: Array, split_dim: int, concat_dim: int) -> Array:
        """This member's piece along ``split_dim`` of every array, joined along ``concat_dim``.

        Raises:
            ShapeError: if there is no such dimension, or ``split_dim`` does not divide.
            DTypeError: if the elements are Python objects.
        """
        pieces = split(array, dimension(split_dim, array.ndim), self.size)
        concat_dim = dimension(concat_dim, array.ndim)
        check_movable(array.dtype)
        if self.size == 1 or array.size == 0:
            return self._empty_or_copy(pieces[0], concat_dim)
        received = fresh(pieces.shape, array.dtype)
        self._transport.alltoall(as_bytes(contiguous(pieces)), as_bytes(received))
        return join(received, concat_dim)

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
        check_movable(array.dtype)
        windows = Windows.of_group(starts, length, array.shape[dim], self.size)
        me = self.rank
        members = range(self.size)
        sent = [_part(array, dim, windows.in_piece(member, me)) for member in members]
        places = [windows.in_window(me, member) for member in members]
        window = fresh(_resized(array.shape, dim, length), array.dtype)
        before, after = windows.outside(me)
        _part(window, dim, slice(0, before))[...] = fill
        _part(window, dim, slice(length - after, length))[...] = fill
        wanted = [_part(window, dim, place) for place in places]
        for member, block in self._blocks(sent, wanted, windows.crosses):
            wanted[member][...] = block
        return window

    def exchange_sum(self, array: Array, dim: int, starts: Sequence[int], extent: int) -> Array:
        """The way back of `exchange`: this member's piece of the sum of all windows.

        Each member gives its window; what lies beyond the ends of the whole is dropped, and
        elements of no window are 0. A piece has ``extent`` elements along ``dim``. The sum is in
        the group's order; half precision is summed in float32.

        Raises:
            ShapeError: see `exchange`.
            DTypeError: if the elements do not add up.
        """
        dim = dimension(dim, array.ndim)
        way = wire(array.dtype, "sum")
        windows = Windows.of_group(starts, array.shape[dim], extent, self.size)
        me = self.rank
        members = range(self.size)
        total = fresh(_resized(array.shape, dim, extent), way.dtype)
        total[...] = 0
        sent = [_part(array, dim, windows.in_window(me, member)) for member in members]
        wanted = [_part(total, dim, windows.in_piece(member, me)) for member in members]
        add = np.maximum if way.reducer == "max" else np.add
        for member, block in self._blocks(sent, wanted, windows.crosses):
            add(wanted[member], block, out=wanted[member])
        return _restored(total, array.dtype)

    def _blocks(
        self, sent: list[Array], like: list[Array], crosses: bool
    ) -> Iterator[tuple[int, Array]]:
        """Per member, in order, the block that it sent to this one; ``like`` has the shapes."""
        me = self.rank
        arrived: dict[int, Array] = {me: sent[me]}
        if crosses:
            others = [block if i != me else block[:0] for i, block in enumerate(sent)]
            shapes = [block.shape if i != me else (0,) for i, block in enumerate(like)]
            itemsize = sent[me].dtype.itemsize
            lengths = [block.nbytes for block in others]
            send = fresh((sum(lengths),), np.dtype(np.uint8))
            for block, part in zip(others, np.split(send, np.cumsum(lengths)[:-1]), strict=True):
                part.view(block.dtype).reshape(block.shape)[...] = block
            sizes = [prod(shape) * itemsize for shape in shapes]
            receive = fresh((sum(sizes),), np.dtype(np.uint8))
            self._transport.exchange(send, lengths, receive, sizes)
            parts = np.split(receive, np.cumsum(sizes)[:-1])
            for member in set(range(self.size)) - {me}:
                block = parts[member].view(sent[me].dtype)
                arrived[member] = block.reshape(shapes[member])
        for member in sorted(arrived):
            yield member, arrived[member]

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """The array of the member at position ``root``; the others give shape and dtype.

        Raises:
            GroupError: if there is no such position.
            DTypeError: if the elements are Python objects.
        """
        self.check_position(root)
        check_movable(array.dtype)
        result = fresh_copy(array) if root == self.rank else fresh(array.shape, array.dtype)
        if self.size > 1 and array.size > 0:
            self._transport.broadcast(as_bytes(result), root)
        return result

    def _empty_or_copy(self, piece: Array, dim: int) -> Array:
        """What the concatenation along ``dim`` is where no byte has to travel for it."""
        if self.size == 1:
            return fresh_copy(piece)
        shape = (*piece.shape[:dim], piece.shape[dim] * self.size, *piece.shape[dim + 1 :])
        return fresh(shape, piece.dtype)

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


def _part(array: Array, dim: int, elements: slice) -> Array:
    """A view of some elements along ``dim``."""
    return array[(slice(None),) * dim + (elements,)]


def _resized(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _restored(result: Array, dtype: np.dtype[Any]) -> Array:
    """A reduction's result in the dtype in which it came."""
    if result.dtype == dtype:
        return result
    if dtype.itemsize == result.dtype.itemsize and dtype == np.bool_:
        return result.view(dtype)
    return fresh_copy(result, dtype)


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
                _world = Group(SingleTransport())
            else:
                from collectives.transport.mpi import connect

                _world = Group(connect(launch))
        return _world
