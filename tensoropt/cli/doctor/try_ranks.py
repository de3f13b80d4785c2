"""A program of ranks that the doctor starts under mpirun. Rank 0 prints a JSON object.

Its key ``versions`` maps the versions of packages to the machines that have them. It has one entry
if all machines have the same versions.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

from collectives import world

__all__ = ["main"]


def main() -> None:
    """Join the other ranks, and send a value from each to all."""
    group = world()
    everyone = group.allgather_object([group.rank, _versions()])
    if group.rank == 0:
        machines: dict[str, list[str]] = {}
        for host, (_, versions) in zip(group.hosts, everyone, strict=True):
            if host not in machines.setdefault(versions, []):
                machines[versions].append(host)
        values = {
            "ranks": group.size,
            "hosts": sorted(set(group.hosts)),
            "mpi": group.library,
            "versions": machines,
            "values_arrived": [number for number, _ in everyone] == list(range(group.size)),
        }
        print(json.dumps(values), flush=True)


def _versions() -> str:
    """The versions on this machine of what all ranks need in the same version."""
    found = [f"Python {platform.python_version()}"]
    for name in ("tensoropt", "tensorflow", "mpi4py"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


if __name__ == "__main__":
    main()
