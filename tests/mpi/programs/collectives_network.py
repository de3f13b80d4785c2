"""Collectives between machines, over connections: two machines of one rank, or of two.

    mpirun -np 4 python collectives_network.py

The ranks are on one machine and take different names of hosts.
"""

from __future__ import annotations

import contextlib
import io
import os
import traceback

import collectives_native
import collectives_numpy
import numpy as np
import tensorflow as tf

import collectives
from collectives.native import transport as transport_module
from collectives.native.mail import mail_of
from collectives.native.network import INTERFACE_VARIABLE
from collectives.native.transport import NativeTransport, native_transport
from collectives.operations.calls import Unwatched
from collectives.operations.kinds.allreduce import Allreduce
from collectives.transport.mpi import HOST_VARIABLE

MACHINES = 2


def check_rounded(member: collectives_native.Member) -> None:
    """Sums of small whole numbers are exact; others are near, and the same bits on all members."""
    n, me = member.size, member.rank
    for sizes in ((1, 20011, 16, 3), (300001,), (7, 2, 300000, 50000)):
        random = [np.random.default_rng([rank, *sizes]) for rank in member.ranks]
        whole = [each.integers(-9, 9, sum(sizes)).astype(np.float32) for each in random]
        close = [each.normal(size=sum(sizes)).astype(np.float32) for each in random]
        for arrays in (whole, close):
            tensors = [tf.constant(part) for part in np.split(arrays[me], np.cumsum(sizes)[:-1])]
            reduced = member.transport.move_joined(
                Allreduce(as_bfloat16=True), member.group, tensors, "", Unwatched()
            )
            found = np.concatenate([tensor.numpy() for tensor in reduced])
            bits = member.group.allgather(found[None].view(np.uint32))
            np.testing.assert_array_equal(bits, np.repeat(bits[:1], n, 0))
            bound = np.zeros(1) if arrays is whole else sum(map(np.abs, arrays)) / 128
            assert (np.abs(found - sum(arrays)) <= bound).all()


def check_messages(world: collectives.Group) -> None:
    """Messages reach members on other machines."""
    mail = mail_of(world)
    assert mail is not None
    assert mail.reaches((world.rank + 1) % world.size)
    collectives_native.check_order_of_messages(world, mail, (9000, 0, 300001), 5)


class _Times(Unwatched):
    """Keeps the processor seconds of the collectives that it watches."""

    def __init__(self) -> None:
        self.worked: list[float | None] = []

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        assert started <= ended
        self.worked.append(worked)


def check_that_the_thread_of_the_network_is_timed(
    world: collectives.Group, transport: NativeTransport
) -> None:
    times = _Times()
    transport.watch(True)
    transport.move(Allreduce(), world, tf.ones([5]), "watched", times)
    transport.watch(False)
    (worked,) = times.worked
    assert worked is not None
    assert worked > 0


def check_that_all_use_mpi_without_connections(world: collectives.Group) -> None:
    transport_module._transports.clear()
    if world.rank == 1:
        os.environ[INTERFACE_VARIABLE] = "none"
    with contextlib.redirect_stderr(io.StringIO()) as said:
        transport = native_transport(world)
    assert transport is not None
    assert not transport.has_network
    assert not transport.carries(Allreduce(), world, tf.float32)
    assert ("use MPI" in said.getvalue() and "Got 'none'" in said.getvalue()) == (world.rank == 0)


def main() -> None:
    os.environ[HOST_VARIABLE] = f"machine-{int(os.environ['PMI_RANK']) % MACHINES}"
    world = collectives.world()
    assert len(set(world.hosts)) == MACHINES
    transport = native_transport(world)
    assert transport is not None
    assert transport.has_network
    pairs = world.split([[0, 1], [2, 3]])
    groups = [world, world.subgroup(tuple(reversed(world.ranks))), pairs]
    for member in [collectives_native.Member(group, transport) for group in groups]:
        assert transport.starts(member.group)
        if member.group is not world:  # its ranks in another order are the harder case
            collectives_numpy.check_all([member])
        collectives_native.check_together(member)
        check_rounded(member)
        collectives_native.check_many_chunks(member)
        collectives_native.check_not_a_number(member)
        collectives_native.check_errors(member)
    check_messages(world)
    check_that_the_thread_of_the_network_is_timed(world, transport)
    check_that_all_use_mpi_without_connections(world)
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
