"""The machines that the ranks run on."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tensorflow as tf

from collectives import Group
from collectives.limits import core_limit, usable_memory_bytes
from collectives.transport.launch import Launch
from tensoropt.converters import Natural, Positive, Text
from tensoropt.cost.cluster import Cluster
from tensoropt.frontend.job.gpus import gpu_memory_bytes
from tensoropt.frontend.job.settings import demanded_threads

__all__ = ["Hardware", "RankFacts", "hardware_of", "idle_cores", "keep_freed_memory", "rank_config"]

# Parameters of glibc's mallopt(3): environment variable, number, and value here.
_ALLOCATOR = (
    ("MALLOC_TRIM_THRESHOLD_", -1, -1),
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 << 20),
    ("MALLOC_ARENA_MAX", -8, 1),
)


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What one rank may use of its machine.

    Attributes:
        host: the name of the machine.
        cores: the numbers of the cores that the rank is bound to; all of them if it is not bound.
        core_limit: the number of cores that the system, or a container, lets the machine's ranks
            use together.
        memory_bytes: the memory that they may use together.
        gpu_bytes: the rank's share of the memory of its GPU; 0 without one.
        threads: the demanded number of threads; None without a demand.
    """

    host: Text
    cores: tuple[Natural, ...]
    core_limit: Positive
    memory_bytes: Positive
    gpu_bytes: Natural
    threads: Positive | None


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machines that the ranks run on.

    Attributes:
        ranks_per_host: number of ranks of each machine.
        cores_per_host: cores that ranks may use on the machine with the fewest.
        memory_bytes_per_host: memory of the smallest machine.
        gpu_bytes: a rank's share of the memory of the smallest GPU; 0 if a rank has no GPU.
        ranks: the ranks from which the other values were worked out.
    """

    ranks_per_host: tuple[int, ...]
    cores_per_host: int
    memory_bytes_per_host: int
    gpu_bytes: int = 0
    ranks: tuple[RankFacts, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, ranks: Sequence[RankFacts]) -> Hardware:
        """The machines of some ranks.

        A rank may be bound to some cores of its machine, so the cores of all its ranks count. The
        limits of a container, and a demanded number of threads, count in place of the machine's
        numbers.
        """
        counts = Counter(rank.host for rank in ranks)
        cores: dict[str, set[int]] = {}
        for rank in ranks:
            cores.setdefault(rank.host, set()).update(rank.cores)
        limits = [rank.core_limit for rank in ranks]
        limits += [rank.threads * max(counts.values()) for rank in ranks if rank.threads]
        return cls(
            tuple(counts.values()),
            cores_per_host=min(*limits, *map(len, cores.values())),
            memory_bytes_per_host=min(rank.memory_bytes for rank in ranks),
            gpu_bytes=min(rank.gpu_bytes for rank in ranks),
            ranks=tuple(ranks),
        )

    @property
    def shares_cores(self) -> bool:
        """Whether all ranks may use the same cores of one machine, and no GPU.

        The system then moves ranks between cores, so that none is slower than the others.
        """
        return len(set(self.ranks)) == 1 and not self.gpu_bytes

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
    """The machines of a group's ranks, see `Hardware.of`. Collective: every rank calls it."""
    machine = range(os.cpu_count() or 1)
    own_cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else machine
    limit = core_limit() or len(machine)
    gpu = gpu_memory_bytes(group.local_rank(), group.local_size())
    own = [sorted(own_cores), limit, usable_memory_bytes(), gpu, demanded_threads()]
    return Hardware.of(
        [
            RankFacts(host, tuple(cores), *others)
            for host, (cores, *others) in zip(group.hosts, group.allgather_object(own), strict=True)
        ]
    )


def idle_cores(hardware: Hardware, available: int, launch: Launch | None) -> str:
    """A line about cores that no rank may use because the launcher binds ranks; empty if none are.

    Open MPI binds each of two ranks to one core, and Slurm each rank to one core by default,
    however many there are. MPICH binds none.

    Args:
        hardware: the machines.
        available: number of cores that the launcher has on this machine.
        launch: the launcher.
    """
    ranks, used = max(hardware.ranks_per_host), hardware.cores_per_host
    remedies = {
        "Open MPI": "mpirun --bind-to none",
        "Slurm": f"srun --cpus-per-task={available // ranks}",
    }
    is_meant = demanded_threads() is not None
    if is_meant or launch is None or launch.launcher not in remedies or available < used + ranks:
        return ""
    return (
        f"{launch.launcher} binds the {ranks} rank{'s' if ranks > 1 else ''} of a machine to "
        f"{used} of its {available} cores; start with {remedies[launch.launcher]} to use all"
    )


def rank_config(hardware: Hardware) -> tf.compat.v1.ConfigProto:
    """The configuration of a rank's sessions: the ranks on a machine share its cores.

    A demanded number of threads counts, even if it is larger than the share. By default each rank
    would start as many threads as there are cores. With one core per rank, operators run one after
    another: a second thread that waits in a collective would take the core from the first one.
    """
    share = max(1, hardware.cores_per_host // max(hardware.ranks_per_host))
    threads = demanded_threads() or share
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
