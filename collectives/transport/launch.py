"""Reads the launcher's environment variables, and chooses those of the MPI library.

These decisions have to be made before MPI starts, so this module does not start it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collectives.errors import TransportError

__all__ = [
    "TRANSPORT_VARIABLE",
    "Launch",
    "available_cores",
    "detect",
    "mpi_settings",
    "shared_memory_bytes",
]

TRANSPORT_VARIABLE = "COLLECTIVES_TRANSPORT"

_MIB = 1 << 20
# Bytes of /dev/shm that a rank on MPICH takes, rounded up. Measured: 5.2 MiB with UCX's POSIX
# segments (83 MiB for 16 ranks), 1.1 MiB of queues without them, and an eighth of that with an
# eighth of the cells.
_POSIX_BYTES_PER_RANK = 8 * _MIB
_QUEUE_BYTES_PER_RANK = 2 * _MIB


@dataclass(frozen=True, slots=True)
class Launch:
    """The launcher that started this process as one of several.

    Attributes:
        launcher: name of the launcher, for messages.
        processes: number of processes of the job, None if unknown.
        local_processes: number of processes of the job on this machine, None if unknown.
    """

    launcher: str
    processes: int | None
    local_processes: int | None


# For each launcher: its name, and the variables with the rank of this process, the size of the job
# and the number of processes on this machine. Slurm sets the rank in a batch script, too, so only
# the variables of a step tell that srun started the process.
_LAUNCHERS = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
)


def detect(environment: Mapping[str, str] | None = None) -> Launch | None:
    """The launcher of this process, None if no launcher started it.

    ``COLLECTIVES_TRANSPORT`` set to ``mpi`` or ``single`` overrules the launchers' variables.

    Raises:
        TransportError: if ``COLLECTIVES_TRANSPORT`` has another value.
    """
    environment = os.environ if environment is None else environment
    wanted = environment.get(TRANSPORT_VARIABLE, "")
    if wanted not in ("", "mpi", "single"):
        raise TransportError(f"{TRANSPORT_VARIABLE} is mpi or single, or not set. Got {wanted!r}.")
    if wanted == "single":
        return None
    for launcher, rank, size, local_size in _LAUNCHERS:
        if rank in environment and size in environment:
            return Launch(
                launcher,
                _leading_number(environment[size]),
                _leading_number(environment.get(local_size, "")),
            )
    if "PMIX_RANK" in environment:
        return Launch("PMIx", None, None)
    return Launch(TRANSPORT_VARIABLE, None, None) if wanted == "mpi" else None


def _leading_number(text: str) -> int | None:
    # Slurm writes counts per node as 4(x2) or 4,3.
    match = re.match(r"\d+", text)
    return int(match.group()) if match else None


def available_cores() -> int:
    """Number of cores that the job may use on this machine.

    A launcher may bind each rank to one core. The launcher itself, the parent process, still has
    all cores, so the larger of the two numbers counts.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    parent = os.getppid()
    if Path(f"/proc/{parent}").exists():
        cores = max(cores, len(os.sched_getaffinity(parent)))
    return cores


def shared_memory_bytes(path: str = "/dev/shm") -> int | None:
    """Size of the file system for shared memory, None where there is none.

    The whole, not what is free: every rank has to come to the same decision from it.
    """
    return shutil.disk_usage(path).total if Path(path).is_dir() else None


def mpi_settings(launch: Launch, cores: int, shared_bytes: int | None) -> dict[str, str]:
    """Environment variables that help MPI on this machine; variables that the user has set win.

    With more ranks than cores, a waiting rank must sleep, because it holds the core that another
    rank needs. MPICH's ordinary yield does not free the core under Linux's scheduler. Its heavy
    yield does, at the price of 0.5 ms of latency, so it is set only with more ranks than cores.

    With little shared memory (containers have 64 MB), MPICH would end with a segmentation fault.
    UCX then uses System V segments, which do not count there, and MPICH uses shorter queues.
    """
    ranks = launch.local_processes
    settings: dict[str, str] = {}
    if ranks is None:
        return settings
    if ranks > cores:
        settings["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
        settings["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if shared_bytes is not None and shared_bytes < ranks * _POSIX_BYTES_PER_RANK:
        settings["UCX_TLS"] = "^posix"
    if shared_bytes is not None and shared_bytes < ranks * _QUEUE_BYTES_PER_RANK:
        settings["MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"] = "8"
    return settings
