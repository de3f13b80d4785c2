"""Tries ranks; the doctor starts this under mpirun. Rank 0 prints a JSON object."""

from __future__ import annotations

import json

from collectives import world

__all__ = ["main"]


def main() -> None:
    """Join the other ranks, and pass a value from each to all."""
    group = world()
    numbers = group.allgather_object(group.rank)
    if group.rank == 0:
        values = {"ranks": group.size, "hosts": sorted(set(group.hosts)), "mpi": group.library}
        print(json.dumps({**values, "is_right": numbers == list(range(group.size))}), flush=True)


if __name__ == "__main__":
    main()
