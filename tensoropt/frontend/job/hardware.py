"""The machines that the ranks run on."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace

import tensorflow as tf

from collectives import Group
from tensoropt.cost.cluster import Cluster
from tensoropt.frontend.job.gpus import gpu_memory_bytes

__all__ = ["Hardware", "hardware_of", "keep_freed_memory", "rank_config"]

# Parameters of glibc's mallopt(3): environment variable, number, and value here.
_ALLOCATOR = (
    ("MALLOC_TRIM_THRESHOLD_", -1, -1),
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 << 20),
    ("MALLOC_ARENA_MAX", -8, 1),
)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machines that the ranks run on.

    Attributes:
        ranks_per_host: number of ranks of each machine.
        cores_per_host: of the smallest machine.
        memory_bytes_per_host: of the smallest machine.
        gpu_bytes: a rank's share of the memory of the smallest GPU; 0 where not every rank has one.
    """

    ranks_per_host: tuple[int, ...]
    cores_per_host: int
    memory_bytes_per_host: int
    gpu_bytes: int = 0

    def spread(self, devices: int) -> tuple[int, ...]:
        """Ranks of each machine, if this number of ranks is spread as the job's ranks are."""
        counts = list(self.ranks_per_host)
        host = 0
        while sum(counts) < devices:
            counts[host % len(counts)] += 1
            host += 1
        while sum(counts) > devices:
            counts[-1] -= 1
            if counts[-1] == 0:
                counts.pop()
        return tuple(counts)

    def cluster(self, devices: int, template: Cluster) -> Cluster:
        """These machines with that many devices, spread over them as the ranks are."""
        found = Cluster.for_hosts(
            template,
            devices_per_host=self.spread(devices),
            memory_bytes_per_host=self.memory_bytes_per_host,
            cores_per_host=self.cores_per_host,
        )
        if not self.gpu_bytes:
            return found
        return replace(found, device=replace(found.device, memory_bytes=self.gpu_bytes))


def hardware_of(group: Group) -> Hardware:
    """The machines of a group's ranks. Collective: every rank calls it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpu = gpu_memory_bytes(group.local_rank(), group.local_size())
    everyone: list[list[int]] = group.allgather_object([cores or 1, memory, gpu])
    ranks_per_host = tuple(Counter(group.hosts).values())
    return Hardware(
        ranks_per_host,
        cores_per_host=min(cores for cores, _, _ in everyone),
        memory_bytes_per_host=min(memory for _, memory, _ in everyone),
        gpu_bytes=min(gpu for _, _, gpu in everyone),
    )


def rank_config(hardware: Hardware) -> tf.compat.v1.ConfigProto:
    """The configuration of a rank's sessions: the ranks on a machine share its cores, instead of
    each starting as many threads as there are cores.

    With one core per rank, operators run one after another: a second thread that waits in a
    collective would only take the core from the first one.
    """
    threads = max(1, hardware.cores_per_host // max(hardware.ranks_per_host))
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for later allocations.

    By default it returns large blocks to the system at once, and the system clears every page that
    it hands out: for the tensors of a training step, which are allocated and freed in every step,
    that costs as much as computing some of them. Blocks of more than 32 MiB are still returned. All
    threads share one arena, since one thread frees what another has allocated: arenas of their own
    consist of parts of 64 MiB, each of which is returned as soon as it is empty. A parameter whose
    environment variable is set, as glibc reads it, stays as it is.

    Returns:
        Whether the C library is glibc and accepts this.
    """
    library = ctypes.CDLL(None)
    if not sys.platform.startswith("linux") or not hasattr(library, "mallopt"):
        return False
    wanted = [option for name, *option in _ALLOCATOR if name not in os.environ]
    accepted = [library.mallopt(*option) for option in wanted]
    return all(accepted)
