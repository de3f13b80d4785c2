"""The native operator: the checks of collectives on arrays, and what arrays do not show.

    mpirun -np 3 python collectives_native.py

Chunks are small here, so that arrays of some hundred kilobytes take many. Ranks are bound to
different numbers of cores, and nevertheless choose the same protocol.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

import collectives_numpy
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from collectives_numpy import Array

import collectives
from collectives.buffers import fresh_copy
from collectives.native import mail as mail_module
from collectives.native import transport as transport_module
from collectives.native import window
from collectives.native.mail import Mail, mail_of
from collectives.native.transport import NativeTransport, native_transport
from collectives.operations.calls import Unwatched
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective, Finish
from collectives.windows import MemberWindows

CHUNK_BYTES = 1 << 13
ROOM_BYTES = 1 << 17


class Member:
    """A member of a group, whose collectives run natively where they can; eagerly."""

    def __init__(self, group: collectives.Group, transport: NativeTransport) -> None:
        self.group, self.transport = group, transport
        self.rank, self.ranks, self.size = group.rank, group.ranks, group.size
        self.native = 0

    def start(self, collective: Collective, array: Array) -> Finish:
        try:
            dtype = tf.as_dtype(array.dtype)
        except TypeError:
            return self.group.start(collective, array)
        if not self.transport.carries(collective, self.group, dtype):
            return self.group.start(collective, array)
        result = self.run(collective, array)
        return lambda: result

    def wait(self) -> None:
        self.group.wait()

    def run(self, collective: Collective, array: Array) -> Array:
        self.native += 1
        tensor = tf.constant(array)
        return fresh_copy(
            self.transport.move(collective, self.group, tensor, "", Unwatched()).numpy()
        )


def check_many_chunks(member: Member, sizes: tuple[int, ...] = (1, 3, 2049, 20011)) -> None:
    """Sums of any size have the same bits as a sum in the group's order."""
    n, me = member.size, member.rank
    for columns in sizes:
        random = [np.random.default_rng([rank, columns]) for rank in member.ranks]
        arrays = [each.normal(size=(3 * n, columns)).astype(np.float32) for each in random]
        total = arrays[0].copy()
        for array in arrays[1:]:
            total += array
        mine = arrays[me]
        expected: dict[Collective, Array] = {
            Allreduce(): total,
            ReduceScatter(0): np.split(total, n, 0)[me],
            Allgather(0): np.concatenate(arrays, 0),
            Allgather(1): np.concatenate(arrays, 1),
            Alltoall(0, 1): np.concatenate([np.split(array, n, 0)[me] for array in arrays], 1),
            Alltoall(0, 0): np.concatenate([np.split(array, n, 0)[me] for array in arrays], 0),
        }
        for collective, value in expected.items():
            np.testing.assert_array_equal(member.run(collective, mine), value)
        columnwise = np.ascontiguousarray(mine.T)
        own = member.run(ReduceScatter(1), columnwise)
        np.testing.assert_array_equal(own, np.split(total.T, n, 1)[me])
        # Halos of a row on either side, and back: each row as often as it was seen.
        windows = MemberWindows(tuple(3 * k - 1 for k in range(n)), 5, 3)
        rows = np.concatenate([array[:3] for array in arrays], 0)
        whole = np.pad(rows, ((1, 1), (0, 0)), constant_values=7)
        seen = member.run(Exchange(0, windows, 7), mine[:3])
        np.testing.assert_array_equal(seen, whole[3 * me : 3 * me + 5])
        counts = np.array([1 + (me > 0), 1, 1 + (me < n - 1)], np.float32)
        back = member.run(ExchangeSum(0, windows), seen)
        np.testing.assert_array_equal(back, mine[:3] * counts[:, None])


def check_together(member: Member) -> None:
    """Tensors of any sizes as one: the bits of each by itself; what was given stays as it is."""
    n, me = member.size, member.rank
    for sizes in ((0,), (1, 0, 7), (5000, 1, 20011, 16, 3), (200003, 2049, 1, 900001)):
        given = [
            [np.random.default_rng([rank, size]).normal(size=size) for size in sizes]
            for rank in member.ranks
        ]
        tensors = [tf.constant(array, tf.float32) for array in given[me]]
        moved = member.transport.move_joined(Allreduce(), member.group, tensors, "", Unwatched())
        for number, (tensor, found) in enumerate(zip(tensors, moved, strict=True)):
            arrays = [given[rank][number].astype(np.float32) for rank in range(n)]
            np.testing.assert_array_equal(tensor.numpy(), arrays[me])
            total = arrays[0].copy()
            for array in arrays[1:]:
                total += array
            np.testing.assert_array_equal(found.numpy(), total)


def check_half(member: Member, dtype: Any) -> None:
    """Every bit pattern comes through a sum with zeros, and sums are rounded once."""
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    mine = patterns if member.rank == 0 else np.zeros_like(patterns)
    with np.errstate(invalid="ignore"):
        expected = (patterns.astype(np.float32) + np.float32(0)).astype(dtype)
    found = member.run(Allreduce(), mine)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    random = [np.random.default_rng(rank) for rank in member.ranks]
    arrays = [(each.normal(size=40000) * 1e3).astype(dtype) for each in random]
    total = sum(array.astype(np.float32) for array in arrays)
    found = member.run(Allreduce(), arrays[member.rank])
    np.testing.assert_array_equal(found, np.asarray(total).astype(dtype))


def check_not_a_number(member: Member) -> None:
    """NaN of any member is the largest, and the least, as in NumPy."""
    mine = np.zeros(3 * member.size, np.float32)
    mine[member.rank] = np.nan
    for reducer in ("max", "min"):
        found = member.run(Allreduce(reducer), mine)
        assert np.isnan(found[: member.size]).all()
        assert not found[member.size :].any()


def check_errors(member: Member) -> None:
    """A dimension that does not divide is an error on every member, and nothing hangs."""
    for collective in (ReduceScatter(0), Alltoall(0, 1)):
        refused = f"Got size {member.size + 1} of dimension 0"
        with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
            member.run(collective, np.ones((member.size + 1, 2), np.float32))


class Told:
    """A `Watch` that keeps what it is told."""

    def __init__(self) -> None:
        self.asked = 0
        self.times: list[tuple[float, float, float | None]] = []

    def before(self, shape: tuple[int, ...] | None) -> None:
        assert shape is None
        self.asked += 1

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        self.times.append((started, ended, worked))


def check_told(member: Member) -> None:
    """Times of collectives are told later, once, and only if they are watched; some ask before."""
    transport, told, tensor = member.transport, Told(), tf.ones([1000])

    def run(times: int) -> None:
        for _ in range(times):
            transport.move(Allreduce(), member.group, tensor, "", told)

    run(1)
    began = time.perf_counter()
    transport.watch(True)
    run(1100)  # more than are taken at once
    assert not told.times
    transport.tell()
    transport.tell()
    assert len(told.times) == 1100
    ends = [began, *(point for times in told.times for point in times[:2]), time.perf_counter()]
    assert ends == sorted(ends)
    assert all(worked is not None and worked >= 0 for _, _, worked in told.times)
    assert told.asked == 0
    transport.watch(True, asks=True)
    run(1)
    transport.watch(False)
    run(1)
    transport.tell()
    assert (len(told.times), told.asked) == (1101, 1)


def check_messages(world: collectives.Group) -> None:
    """Messages arrive in another order than they are sent; there is no room for all at once."""
    mail_module.usable_memory_bytes = lambda: mail_module._SHARE * world.size * ROOM_BYTES
    mail = mail_of(world)
    assert mail is not None
    assert mail_of(world) is mail
    after = (world.rank + 1) % world.size
    with pytest.raises(tf.errors.AbortedError, match="are counted before one is sent"):
        mail.send(tf.zeros(2), after, 0, "")

    def admits(*sizes: int) -> bool:
        ranks = range(world.size)
        return mail.admits(
            (rank, (rank + 1) % world.size, size) for rank in ranks for size in sizes
        )

    assert admits(9000, 1, 1)
    assert not admits(70000)
    assert admits(30000)
    assert not admits(40000)  # for a room that holds the first ones, too
    with pytest.raises(collectives.TransportError, match="tags of messages through MPI are from"):
        world.send(np.zeros(1), after, 1 << 40)
    # Each size has places of its own.
    check_order_of_messages(world, mail, (9000, 0, 30000, 3000, 70), 20)
    assert mail.seconds > 0


def check_order_of_messages(
    world: collectives.Group, mail: Mail, sizes: Sequence[int], steps: int
) -> None:
    """Members receive in another order than they send; a message of another size is an error."""
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in sizes:
        for step in range(steps):
            value = np.arange(size, dtype=np.uint8) + np.uint8(step)
            mail.send(tf.constant(value + np.uint8(world.rank)), after, 1 << 40, "large")
            mail.send(tf.constant(world.rank + step), after, 3, "small")
            small = mail.receive([], tf.int32, before, 3, "small")
            large = mail.receive([size], tf.uint8, before, 1 << 40, "large")
            assert small.numpy() == before + step
            np.testing.assert_array_equal(large.numpy(), value + np.uint8(before))
    mail.send(tf.zeros(2), after, 0, "")
    with pytest.raises(tf.errors.AbortedError, match="Got 8 for 4"):
        mail.receive([1], tf.float32, before, 0, "")


def new_transport(
    world: collectives.Group, least_read: int, bypass_below: float = 0.0
) -> NativeTransport:
    """One that reads so many bytes and more from the others' memory."""
    transport_module._transports.clear()
    transport_module.LEAST_READ = least_read
    transport_module.BYPASS_BELOW = bypass_below
    transport = native_transport(world)
    assert transport is not None
    assert native_transport(world) is transport
    return transport


def check(world: collectives.Group) -> None:
    transport = new_transport(world, 1 << 60)
    transport.overlaps = True
    turned = Member(world.subgroup(tuple(reversed(world.ranks))), transport)
    collectives_numpy.check_all([turned])
    assert turned.native > 500
    for member in (turned, Member(world, transport)):
        transport.overlaps = member is turned
        check_many_chunks(member)
        check_together(member)
        check_half(member, np.float16)
        check_half(member, ml_dtypes.bfloat16)
        check_not_a_number(member)
        check_errors(member)
    check_told(turned)
    check_many_chunks(turned, (200003,))  # past the caches
    assert transport.seconds > 0


def bind() -> None:
    """Bind rank 0 to all cores, and each other rank to one."""
    cores = sorted(os.sched_getaffinity(0))
    rank = int(os.environ.get("PMI_RANK", "0"))
    os.sched_setaffinity(0, [cores[-rank % len(cores)]] if rank else cores)


def main() -> None:
    bind()
    world = collectives.world()
    window.CHUNK_BYTES = CHUNK_BYTES
    check(world)
    check_many_chunks(Member(world, new_transport(world, 1)), (1, 2049, 80003))
    past_caches = Member(world, new_transport(world, 1 << 60, math.inf))
    check_many_chunks(past_caches)
    check_together(past_caches)
    mail_module.BYPASS_BELOW = math.inf
    check_messages(world)
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
