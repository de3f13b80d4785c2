"""Collectives between machines, over connections: two machines of one rank, or of two.

    mpirun -np 4 python collectives_network.py

The ranks are on one machine and take different names of hosts.
"""

from __future__ import annotations

import os
import traceback

import collectives_native
import collectives_numpy

import collectives
from collectives.native.transport import native_transport
from collectives.transport.mpi import HOST_VARIABLE

MACHINES = 2


def main() -> None:
    os.environ[HOST_VARIABLE] = f"machine-{int(os.environ['PMI_RANK']) % MACHINES}"
    world = collectives.world()
    assert len(set(world.hosts)) == MACHINES
    transport = native_transport(world)
    assert transport is not None
    assert transport.has_network
    groups = [world, world.subgroup(tuple(reversed(world.ranks)))]
    for member in [collectives_native.Member(group, transport) for group in groups]:
        assert transport.starts(member.group)
        collectives_numpy.check_all([member])
        collectives_native.check_together(member)
        collectives_native.check_many_chunks(member)
        collectives_native.check_not_a_number(member)
        collectives_native.check_errors(member)
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
