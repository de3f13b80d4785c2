"""Reads the launcher's environment variables, and chooses those of the MPI library.

These decisions have to be made before MPI starts, so this module does not start it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectives.errors import TransportError
from collectives.limits import core_limit

__all__ = [
    "TRANSPORT_VARIABLE",
    "Launch",
    "available_cores",
    "check_library",
    "check_size",
    "detect",
    "distinct_names",
    "library_settings",
    "machine_identity",
    "mpi_settings",
    "reads_memory",
    "refuse_single_ranks",
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


# For each launcher: its name, a variable that it alone sets for each rank, and the variables with
# the size of the job and the number of processes on this machine. The first one that fits counts:
# mpirun in a job of Slurm lets srun start its own processes, so ranks have Slurm's variables, too.
# Slurm sets the rank in a batch script, too, so the size of a step tells that srun started it.
_LAUNCHERS = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPICH", "MPI_LOCALNRANKS", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", ""),
)
# Launchers without MPI, and their variables with the size of the job.
_WITHOUT_MPI = (("torchrun", "WORLD_SIZE"), ("horovodrun", "HOROVOD_SIZE"))


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
    for launcher, sign, size, local_size in _LAUNCHERS:
        if sign in environment and size in environment:
            node = environment.get("SLURM_NODEID", "0") if launcher == "Slurm" else "0"
            local_processes = _of_node(environment.get(local_size, ""), int(node))
            return Launch(launcher, int(environment[size]), local_processes)
    if "PMIX_RANK" in environment:
        return Launch("PMIx", None, None)
    return Launch(TRANSPORT_VARIABLE, None, None) if wanted == "mpi" else None


def refuse_single_ranks(environment: Mapping[str, str] | None = None) -> None:
    """Refuse a process without an MPI launcher that another launcher has started as one of several.

    Each of these processes would be a job of its own.

    Raises:
        TransportError: if a variable of such a launcher has a size above one.
    """
    environment = os.environ if environment is None else environment
    if environment.get(TRANSPORT_VARIABLE) == "single":
        return
    for launcher, variable in _WITHOUT_MPI:
        size = environment.get(variable, "")
        if size.isdigit() and int(size) > 1:
            raise TransportError(
                "ranks are started by mpirun or srun, through which MPI connects them. Got "
                f"{variable}={size}, which {launcher} sets, and no variable of mpirun or srun: "
                f"start them with mpirun -np {size}, or set {TRANSPORT_VARIABLE}=single for "
                "processes that are jobs of their own."
            )


def library_settings(launch: Launch, library: str) -> dict[str, str]:
    """Environment variables that an MPI library needs under a launcher; set ones win.

    Ranks exchange their addresses through the launcher. Slurm's PMI2 refuses lines of more than
    some 1,000 bytes, and MPICH, whose addresses are longer with UCX, waits for an answer forever.
    With libfabric they are short.
    """
    device = re.search(r"^MPICH Device:\s*ch4:(.*)$", library, re.MULTILINE)
    has_both = device is not None and {"ucx", "ofi"} <= set(device[1].split())
    return {"MPIR_CVAR_CH4_NETMOD": "ofi"} if has_both and launch.launcher == "Slurm" else {}


def check_library(launch: Launch, library: str) -> None:
    """Check, before MPI starts, that a library can start under a launcher: else it ends the process
    without a reason that a user understands, or starts alone."""
    is_open_mpi, has_pmix = library.startswith("Open MPI"), "PMIX_RANK" in os.environ
    is_mpich_without_pmix = library.startswith("MPICH") and "pmix" not in library.lower()
    if is_mpich_without_pmix if has_pmix else (is_open_mpi and launch.launcher == "MPICH"):
        raise TransportError(
            f"mpi4py and the launcher use one MPI. Got {launch.launcher}"
            f"{' with PMIx' if has_pmix else ''}, and mpi4py with {_short(library)}: start "
            f"processes with {_matching_launcher(launch, library)}."
        )


def check_size(launch: Launch, size: int, library: str) -> None:
    """Check that MPI has joined all processes that the launcher has started.

    A process that MPI does not join is a job of its own. PMIx alone tells a process its rank, not
    the number of processes.

    Raises:
        TransportError: if MPI has not.
    """
    rank = int(os.environ.get("PMIX_RANK", "0"))
    started = launch.processes or (rank + 1 if rank >= size else size)
    if started != size:
        raise TransportError(
            f"mpi4py and the launcher use one MPI. Got {started} processes from "
            f"{launch.launcher} but {size} in {_short(library)}: start processes with "
            f"{_matching_launcher(launch, library)}."
        )


def _short(library: str) -> str:
    """Name and version of an MPI library."""
    return " ".join(library.splitlines()[0].split(",")[0].split())


def _matching_launcher(launch: Launch, library: str) -> str:
    """The command that starts processes with this MPI library."""
    beside = Path(sys.executable).parent / "mpirun"
    own = f"its mpirun{f', {beside}' if beside.exists() else ''}"
    if launch.launcher != "Slurm":
        return own
    kind = "pmix" if library.startswith("Open MPI") else "pmi2"
    return f"srun --mpi={kind} (srun --mpi=list shows which there are), or in a job with {own}"


def _of_node(counts: str, node: int) -> int | None:
    """The number of processes of a node; None if the text is no list of numbers.

    Slurm writes numbers of nodes one after another as 4 or 4(x2),3.
    """
    numbers: list[int] = []
    for part in counts.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return None
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers[node] if node < len(numbers) else None


def available_cores() -> int:
    """Number of cores that the job may use on this machine.

    A launcher may bind each rank to one core. The launcher itself, the parent process, still has
    all cores, so the larger of the two numbers counts. Slurm gives a job some of the cores, but may
    leave all to the parent process. A container may limit the processor time.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    own = cores = len(os.sched_getaffinity(0))
    parent = os.getppid()
    if Path(f"/proc/{parent}").exists():
        cores = max(cores, len(os.sched_getaffinity(parent)))
    allocated = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if allocated.isdigit():
        cores = max(own, min(cores, int(allocated)))
    return min(cores, core_limit() or cores)


def machine_identity() -> str:
    """What processes of one machine, or of one container, have in common, whatever its name."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    if not (boot.exists() and network.exists()):
        return ""
    return f"{boot.read_text('ascii').strip()} {network.stat().st_ino}"


def distinct_names(machines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """A name for the machine of each process, from its name and identity.

    Several machines may have one name, ``localhost`` for instance. All but the first of them get a
    number.
    """
    identities: dict[str, list[str]] = {}
    names = []
    for name, identity in machines:
        known = identities.setdefault(name, [])
        if identity not in known:
            known.append(identity)
        number = known.index(identity)
        names.append(f"{name}#{number + 1}" if number else name)
    return tuple(names)


def shared_memory_bytes(path: str = "/dev/shm") -> int | None:
    """Size of the file system for shared memory, None where there is none.

    The whole, not what is free: every rank has to come to the same decision from it.
    """
    return shutil.disk_usage(path).total if Path(path).is_dir() else None


def reads_memory() -> bool:
    """Whether the system lets a process read another one's memory. It lets a process read its own,
    unless a container forbids the call, as Docker does by default."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "process_vm_readv"):
        return False
    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    spans = [(ctypes.c_size_t * 2)(ctypes.addressof(each), 1) for each in (target, source)]
    return bool(library.process_vm_readv(os.getpid(), spans[0], 1, spans[1], 1, 0) == 1)


def mpi_settings(
    launch: Launch, cores: int, shared_bytes: int | None, reads: bool = True
) -> dict[str, str]:
    """Environment variables that help MPI on this machine; variables that the user has set win.

    With more ranks than cores, a waiting rank must sleep, because it holds the core that another
    rank needs. MPICH's ordinary yield does not free the core under Linux's scheduler. Its heavy
    yield does, at the price of 0.5 ms of latency, so it is set only with more ranks than cores.

    With little shared memory (containers have 64 MB), MPICH would end with a segmentation fault.
    UCX then uses System V segments, which do not count there, and MPICH uses shorter queues.

    MPICH reads other ranks' memory without asking whether the system lets it (``reads``).
    """
    ranks = launch.local_processes
    settings: dict[str, str] = {} if reads else {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}
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
