"""The things that the doctor tries, each with its remedy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collectives.limits import core_limit
from collectives.transport.launch import available_cores, reads_memory, shared_memory_bytes
from tensoropt.cli.doctor.finding import Finding, try_in_process
from tensoropt.elastic.hosts import Host
from tensoropt.elastic.launcher import MPIRun, mpirun
from tensoropt.errors import OptionError
from tensoropt.plan.amounts import bytes_of
from tensoropt.report.views.amounts import plural

__all__ = ["findings", "machines"]

_TENSORFLOW_SECONDS = 300.0  # a first compilation of the collectives takes a minute on a busy core
_RANKS_SECONDS = 60.0
_SHARED_BYTES_PER_RANK = 8 * 2**20  # of MPICH, see `collectives.transport.launch`
_INSTALL_MPI = "pip install 'tensoropt[mpi]' brings MPICH and its mpirun"
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def findings(hosts: Sequence[Host], ranks: int) -> Iterator[Finding]:
    """Try one thing after another.

    Args:
        hosts: the machines to try.
        ranks: the number of ranks to start on this machine.
    """
    yield _python()
    yield from _with_tensorflow()
    yield _ranks(ranks)
    yield _shared_memory(ranks)
    yield from machines(hosts)


def _python() -> Finding:
    number = ".".join(map(str, sys.version_info[:3]))
    limit = core_limit()
    limited = "" if limit is None else f", of which a container allows {limit}"
    return Finding("Python", "works", f"{number}, {plural(available_cores(), 'core')}{limited}")


def _with_tensorflow() -> Iterator[Finding]:
    """Find TensorFlow, GPUs, the compiler and Horovod, by one process that imports TensorFlow."""
    command = [sys.executable, "-m", "tensoropt.cli.doctor.try_tensorflow"]
    tried = try_in_process(command, _TENSORFLOW_SECONDS)
    found = {value["what"]: value for value in tried.values}
    if "tensorflow" not in found:
        remedy = "pip install 'tensorflow>=2.16,<2.22'; on a processor without AVX, build it there"
        yield Finding("TensorFlow", "fails", tried.error, remedy)
        return
    tensorflow = found["tensorflow"]
    state: Any = "works" if tensorflow["is_right"] else "fails"
    remedy = "" if tensorflow["is_right"] else "a matrix product is wrong: install it again"
    yield Finding("TensorFlow", state, tensorflow["version"], remedy)
    yield _gpus(int(tensorflow["gpus"]))
    yield _compiler(found.get("compiler", {"error": tried.error}))
    yield _horovod(found.get("horovod", {"error": tried.error}))


def _gpus(seen: int) -> Finding:
    there = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    if seen:
        return Finding("GPUs", "works", f"{seen} that TensorFlow uses")
    if there:
        remedy = "pip install 'tensorflow[and-cuda]', of the version that the driver supports"
        return Finding("GPUs", "fails", f"{there}, none of which TensorFlow uses", remedy)
    return Finding("GPUs", "absent", "none: ranks compute on cores")


def _compiler(values: dict[str, Any]) -> Finding:
    if "file" in values:
        return Finding("compiler", "works", f"collectives in C++: {values['file']}")
    remedy = "install g++ or clang++ (apt install g++), or name one in CXX; collectives run in"
    return Finding("compiler", "absent", _one_line(values["error"]), f"{remedy} Python until then")


def _horovod(values: dict[str, Any]) -> Finding:
    if "version" in values:
        return Finding("Horovod", "works", values["version"])
    install = values.get("install", "install it again")
    remedy = f"only for transport='horovod': pip install 'tensoropt[mpi,horovod-build]'; {install}"
    if "absent" in values:
        return Finding("Horovod", "absent", _one_line(values["absent"]), remedy)
    return Finding("Horovod", "fails", _one_line(values["error"]), remedy)


def _ranks(ranks: int) -> Finding:
    """Start ranks on this machine by mpirun, and let them send a value."""
    try:
        command = [mpirun(), "-np", str(ranks), sys.executable, "-m"]
    except OptionError as error:
        return Finding("MPI", "fails", _one_line(str(error).partition("Got ")[2]), _INSTALL_MPI)
    tried = try_in_process([*command, "tensoropt.cli.doctor.try_ranks"], _RANKS_SECONDS)
    if tried.error or not tried.values or not tried.values[0]["values_arrived"]:
        remedy = f"mpi4py and mpirun have to be of one MPI: {_INSTALL_MPI}; the first is"
        return Finding("MPI", "fails", tried.error or "no answer", f"{remedy} {command[0]}")
    values = tried.values[0]
    return Finding("MPI", "works", f"{values['ranks']} ranks, {values['mpi']}, {command[0]}")


def _shared_memory(ranks: int) -> Finding:
    size, reads = shared_memory_bytes(), reads_memory()
    if size is None:
        remedy = "mount a tmpfs on /dev/shm"
        return Finding("shared memory", "fails", "no /dev/shm", remedy)
    found = f"{bytes_of(size)} in /dev/shm, " + (
        "ranks read each other's memory" if reads else "the system lets no rank read another's"
    )
    if not os.access("/dev/shm", os.W_OK):
        return Finding("shared memory", "fails", found, "give the user write access to /dev/shm")
    if size < ranks * _SHARED_BYTES_PER_RANK:
        remedy = f"more than {bytes_of(ranks * _SHARED_BYTES_PER_RANK)}: docker run --shm-size=1g"
        return Finding("shared memory", "absent", found, f"{remedy}; collectives are slower")
    return Finding("shared memory", "works", found)


def machines(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Ask each machine for an answer, and let a rank on each that answers send a value to all."""
    names = [host.name for host in hosts if host.name]
    if not names:
        remedy = "tensoropt doctor --hosts FILE tries others, one name a line"
        yield Finding("machines", "absent", "this one alone", remedy)
        return
    try:
        launcher = MPIRun(("true",))
    except OptionError as error:
        yield Finding("machines", "fails", _one_line(str(error)), _INSTALL_MPI)
        return
    answering = launcher.answering(names)
    there = [name for name in names if name in answering]
    silent = [name for name in names if name not in answering]
    if silent:
        remedy = "ssh NAME true must end well without a password, with the same mpirun on PATH"
        found = f"{len(there)} of {len(names)} answer, not {', '.join(silent)}"
        yield Finding("machines", "fails", found, remedy)
    else:
        yield Finding("machines", "works", f"{len(names)} answer: {', '.join(names)}")
    if there:
        yield _ranks_of(launcher, there)


def _ranks_of(launcher: MPIRun, names: Sequence[str]) -> Finding:
    """Start a rank on each machine, and compare what the ranks say of theirs."""
    what = "ranks on machines"
    command = launcher.launch([Host(name, 1) for name in names], os.environ)
    program = [sys.executable, "-m", "tensoropt.cli.doctor.try_ranks"]
    tried = try_in_process([*command, *program], _RANKS_SECONDS)
    if tried.error or not tried.values or not tried.values[0]["values_arrived"]:
        remedy = (
            f"{sys.executable} has to be on each machine, with the same packages; each resolves "
            "the names of the others; COLLECTIVES_INTERFACE names the network that joins them"
        )
        return Finding(what, "fails", _one_line(tried.error) or "no answer", remedy)
    values = tried.values[0]
    if len(values["hosts"]) != len(names):
        found = f"{len(names)} names are {len(values['hosts'])} machines"
        return Finding(what, "fails", found, "name each machine once, with its slots")
    if len(values["versions"]) > 1:
        kinds = [f"{', '.join(on)}: {versions}" for versions, on in values["versions"].items()]
        return Finding(what, "fails", "; ".join(kinds), "install the same versions on all machines")
    (versions,) = values["versions"]
    return Finding(what, "works", f"a rank on each of {len(names)} sent a value to all, {versions}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
