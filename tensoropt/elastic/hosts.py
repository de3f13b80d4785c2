"""The machines of a job, and the ranks that each of them gets."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensoropt.errors import OptionError

__all__ = [
    "Host",
    "NextStart",
    "hosts_of_job",
    "next_starts",
    "parse_hosts",
    "placement",
    "read_starts",
    "write_starts",
]

_LINE = re.compile(r"([^\s:#=]+)(?::(\d+)|\s+slots\s*=\s*(\d+))?\s*(?:#.*)?")
_FORM = "a line of a file of hosts is 'a', 'a:2' or 'a slots=2'"
_NODES, _TASKS = "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine; prints as ``a:2``.

    Attributes:
        name: its name for the launcher; empty for this machine alone, which needs no name.
        slots: the most ranks that it runs.
    """

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name or 'this machine'}:{self.slots}"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """The hosts of a file in the form of MPICH's or of Open MPI's ``mpirun``.

    Raises:
        OptionError: if a line has another form, a host comes twice, or there is no host.
    """
    hosts: dict[str, Host] = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        slots = int(parts[2] or parts[3] or 1) if parts else 0
        if parts is None or not slots:
            raise OptionError(f"{_FORM}, with at least one rank. Got {line!r}; correct the line.")
        if parts[1] in hosts:
            raise OptionError(f"{_FORM}, once for each host. Got {parts[1]!r} twice; drop one.")
        hosts[parts[1]] = Host(parts[1], slots)
    if not hosts:
        raise OptionError(f"{_FORM}. Got no line with a host; add one.")
    return tuple(hosts.values())


def hosts_of_job(
    file: Path | None, devices: int, environment: Mapping[str, str] = os.environ
) -> tuple[Host, ...]:
    """The machines that a job may use.

    Args:
        file: a file of hosts; None for the nodes of a job of Slurm, or else for this machine.
        devices: the number of ranks that this machine gets without other hosts.
        environment: the variables of a batch system.

    Raises:
        OptionError: if the file cannot be read, or Slurm does not name its nodes; see
            `parse_hosts`, too.
    """
    if file is not None:
        try:
            return parse_hosts(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"--hosts is a file of hosts. Got {str(file)!r}: {error}. Give its path."
            ) from error
    nodes = environment.get(_NODES)
    if nodes is None:
        return (Host("", devices),)
    names = _names_of_nodes(nodes)
    slots = _slots(environment.get(_TASKS, ""), len(names))
    return tuple(Host(name, count) for name, count in zip(names, slots, strict=True))


def _names_of_nodes(nodes: str) -> list[str]:
    """The names of nodes that Slurm writes as ``n[1-3]``."""
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        raise OptionError(
            f"the machines of a job of Slurm are the nodes that `scontrol` names for {_NODES}. Got "
            f"{nodes!r}, and from scontrol: {str(reason).strip()}. Give the machines by --hosts."
        ) from error


def _slots(tasks: str, nodes: int) -> list[int]:
    """The tasks of each node, which Slurm writes as ``4(x2),3``; one where it says nothing."""
    slots: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):
        slots += [int(count)] * int(times or 1)
    return slots if len(slots) == nodes else [1] * nodes


def placement(hosts: Sequence[Host], left_out: Collection[str], devices: int) -> tuple[Host, ...]:
    """The hosts of the next start, each with its number of ranks.

    Hosts beyond the number of ranks are spares.

    Args:
        hosts: all hosts of the job, in the order of their use.
        left_out: names of hosts that are not used.
        devices: the most ranks.
    """
    placed: list[Host] = []
    for host in hosts:
        ranks = min(host.slots, devices - sum(each.slots for each in placed))
        if ranks > 0 and host.name not in left_out:
            placed.append(Host(host.name, ranks))
    return tuple(placed)


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
