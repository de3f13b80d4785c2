"""Rank 1 gives up while the others wait for it."""

from __future__ import annotations

import collectives

if __name__ == "__main__":
    world = collectives.world()
    world.barrier()
    if world.rank == 1:
        world.abort(7)
    world.barrier()
    print("unreachable", flush=True)
