"""The starts that may follow the loss of one machine, for which plans are searched in advance."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensoropt.elastic.hosts import Host, placement

__all__ = ["NextStart", "next_starts", "read_starts", "write_starts"]

NextStart = tuple[int, ...]
"""The number of ranks of each machine of the present start; 0 for a machine without ranks."""


def next_starts(
    hosts: Sequence[Host],
    used: Sequence[Host],
    left_out: Collection[str],
    devices: int,
    least_devices: int,
) -> tuple[NextStart, ...]:
    """The starts on machines of the present start, without one of them.

    A start that takes a spare machine in is left out: no rank has measured that machine.

    Args:
        hosts: all hosts of the job, in the order of their use.
        used: the hosts of the present start, each with its number of ranks.
        left_out: names of hosts that the next start does not use.
        devices: the most ranks.
        least_devices: the fewest ranks of a start.
    """
    starts: dict[NextStart, None] = {}
    for lost in used:
        placed = placement(hosts, {lost.name, *left_out}, devices)
        ranks = {host.name: host.slots for host in placed}
        is_known = ranks.keys() <= {host.name for host in used}
        if placed and is_known and sum(ranks.values()) >= least_devices:
            starts[tuple(ranks.get(host.name, 0) for host in used)] = None
    return tuple(starts)


def write_starts(starts: Sequence[NextStart]) -> str:
    """The starts as the text of an environment variable, such as ``0,2;2,0``."""
    return ";".join(",".join(map(str, ranks)) for ranks in starts)


def read_starts(text: str) -> tuple[NextStart, ...]:
    """The inverse of `write_starts`."""
    return tuple(tuple(map(int, ranks.split(","))) for ranks in text.split(";") if ranks)
