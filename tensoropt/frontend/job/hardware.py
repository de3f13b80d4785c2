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
        cores_per_host: cores of the smallest machine.
        memory_bytes_per_host: memory of the smallest machine.
        gpu_bytes: a rank's share of the memory of the smallest GPU; 0 if a rank has no GPU.
    """

    ranks_per_host: tuple[int, ...]
    cores_per_host: int
    memory_bytes_per_host: int
    gpu_bytes: int = 0

    def spread(self, devices: int) -> tuple[int, ...]:
        """Number of ranks on each machine, if this many ranks are spread as the job's are."""
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
        """A cluster of these machines with this many devices, spread as the job's ranks are."""
        cluster = Cluster.for_hosts(
            template,
            devices_per_host=self.spread(devices),
            memory_bytes_per_host=self.memory_bytes_per_host,
            cores_per_host=self.cores_per_host,
        )
        if not self.gpu_bytes:
            return cluster
        return replace(cluster, device=replace(cluster.device, memory_bytes=self.gpu_bytes))


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
    """The configuration of a rank's sessions: the ranks on a machine share its cores.

    By default each rank would start as many threads as there are cores. With one core per rank,
    operators run one after another: a second thread that waits in a collective would take the core
    from the first one.
    """
    threads = max(1, hardware.cores_per_host // max(hardware.ranks_per_host))
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for later allocations.

    By default glibc returns large blocks to the system at once, and the system clears every page
    that it hands out. For the tensors of a training step, allocated and freed in every step, this
    takes as long as computing some of them. Blocks of more than 32 MiB are still returned. All
    threads share one arena, because one thread frees the memory of another: separate arenas consist
    of parts of 64 MiB, each of which is returned as soon as it is empty. A parameter whose
    environment variable is set keeps the value that glibc reads there.

    Returns:
        Whether the C library is glibc and accepts this.
    """
    library = ctypes.CDLL(None)
    if not sys.platform.startswith("linux") or not hasattr(library, "mallopt"):
        return False
    wanted = [option for name, *option in _ALLOCATOR if name not in os.environ]
    accepted = [library.mallopt(*option) for option in wanted]
    return all(accepted)
