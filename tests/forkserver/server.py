"""An interpreter that has imported TensorFlow and is forked for every program that needs it.

    python server.py NAME OWNER

It listens on the Unix socket NAME in its folder until the process OWNER ends. ``client.py`` sends a
program, its environment and its file descriptors; the answer is the program's process id, and how
it ended once it has. Importing TensorFlow takes seconds and starts no thread, so that a fork is as
good as an interpreter of its own, and no program sees what another one did. Nothing is imported
here that changes what a program finds: not mpi4py, and of TensorOpt's frontend the modules, but not
the package, whose import installs guards where a launcher has started the program.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass

import numpy as np

IMPORTED = (
    "keras",
    "scipy.optimize",
    "tensorflow.compat.v1",
    "tensoropt.cost.measuring.measure",
    "tensoropt.execution.runtime.dry_run",
    "tensoropt.execution.runtime.executor",
    "tensoropt.execution.world.mpi_world",
    "tensoropt.planner.spaces",
    "tensoropt.planner.split_check",
    "tensoropt.search",
)
# Only the modules below it: each program imports the package itself.
BELOW = "tensoropt.frontend"
HEADER_BYTES = 8
MOST_DESCRIPTORS = 10
LAUNCHER = "PMI_FD"  # the variable with the descriptor over which MPICH's launcher hears of a rank
LIBC = ctypes.CDLL(None, use_errno=True)
OWN_PATHS = len(os.environ["PYTHONPATH"].split(os.pathsep))
ended: list[int] = []  # the status of the program, once it has ended other than by a signal


@dataclass(frozen=True, slots=True)
class Request:
    """A program to run.

    Attributes:
        program: what an interpreter is given: a file, or ``-c`` or ``-m`` with its value, and then
            the arguments.
        cores: the cores on which it runs.
        spaces: number of the descriptors that are namespaces; they come first.
        descriptors: namespaces, standard input, output and error; of a rank the launcher's socket,
            too.
    """

    program: list[str]
    folder: str
    environment: dict[str, str]
    cores: list[int]
    spaces: int
    descriptors: list[int]


def accepted(name: str, owner: int) -> socket.socket:
    """Fork for every client until the owner ends. Returns in the forks."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(name)
    listening.listen()
    if os.fork():
        os._exit(0)  # Clients can come, and wait during the imports.
    shared: set[str] = set()
    atexit.register(leave, shared)  # first, so that it is called last
    before = set(sys.modules)
    for module in IMPORTED:
        importlib.import_module(module)
    import_below(BELOW)
    kernels = importlib.import_module("tensoropt.planner.kernels")
    shared |= sys.modules.keys() - before
    kernels.load_kernels()  # Each program that plans would load them from files.
    gc.freeze()  # What is shared with the forks is not to be touched by their collections.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody asks how the forks end.
    owner_ends = os.pidfd_open(owner)
    while True:
        ready, _, _ = select.select([listening, owner_ends], [], [])
        if owner_ends in ready:
            sys.exit()
        client, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(owner_ends)
            listening.close()
            return client
        client.close()


def import_below(package: str) -> None:
    """Import all modules of a package, in whose place an empty module stands meanwhile."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    sys.modules[package] = importlib.util.module_from_spec(spec)
    for module in pkgutil.walk_packages(spec.submodule_search_locations, f"{package}."):
        importlib.import_module(module.name)
    parent, _, name = package.rpartition(".")
    del sys.modules[package]
    vars(sys.modules[parent]).pop(name, None)


def leave(names: set[str]) -> None:
    """Keep Python from taking apart as it ends what forks share, which it would copy.

    It takes apart the rest in the first rank of each job, as an end of Python is to be seen, too.
    """
    left = [sys.modules.pop(name, None) for name in names]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))
    if not ended or os.environ.get("PMI_RANK") == "0":
        return
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    ctypes.pythonapi.exit(ended[0])  # The launcher hears of it from a function that this calls.


def requested(client: socket.socket) -> Request:
    """What a client asks for."""
    header, descriptors, _, _ = socket.recv_fds(client, HEADER_BYTES, MOST_DESCRIPTORS)
    with client.makefile("rb") as stream:
        body = stream.read(int.from_bytes(header, "big"))
    return Request(**json.loads(body), descriptors=descriptors)


def enter(spaces: list[int]) -> None:
    """Enter the namespaces in which this process is not yet; forks enter the one of processes."""
    own = [os.stat(f"/proc/self/ns/{name}").st_ino for name in os.listdir("/proc/self/ns")]
    for space in spaces:
        if os.fstat(space).st_ino not in own and LIBC.setns(space, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def number_inside(pid: int) -> str:
    """The number that a process has in its own namespace."""
    with open(f"/proc/{pid}/status") as status:
        return next(line for line in status if line.startswith("NSpid:")).split()[-1]


def watch(pid: int, client: socket.socket) -> None:
    """Tell the client of its program; if the client is gone before it ends, kill the program."""
    ends = os.pidfd_open(pid)
    with contextlib.suppress(BrokenPipeError):
        client.sendall(f"{number_inside(pid)}\n".encode())
        select.select([client, ends], [], [])
    ended, _, _ = select.select([ends], [], [], 0)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if ended:
        client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def take_over(request: Request) -> None:
    """Make this process the one that the program expects."""
    os.sched_setaffinity(0, request.cores)
    for number, descriptor in enumerate(request.descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    tempfile.tempdir = None  # The environment names it.
    if LAUNCHER in os.environ:
        os.environ[LAUNCHER] = str(request.descriptors[3])
    os.chdir(request.folder)
    first, *rest = request.program
    named = first in ("-c", "-m")
    sys.argv = rest if named else request.program
    folder = "" if named else os.path.dirname(os.path.abspath(first))
    sys.path[: 1 + OWN_PATHS] = [folder, *os.environ["PYTHONPATH"].split(os.pathsep)]
    # A job in the background ignores it, and so would its forks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()  # Python's own generator does so by itself.


def run(first: str) -> None:
    """Run the program as ``__main__``; ``sys.argv`` has it and its arguments."""
    try:
        if first == "-m":
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            text, sys.argv[0] = sys.argv[0], first
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(first, run_name="__main__")
        ended.append(0)
    except SystemExit as end:
        ended.append(end.code & 255 if isinstance(end.code, int) else int(end.code is not None))
        raise
    except Exception:
        ended.append(1)
        raise


def main() -> None:
    client = accepted(sys.argv[1], int(sys.argv[2]))
    request = requested(client)
    spaces = [request.descriptors.pop(0) for _ in range(request.spaces)]
    users, processes, *others = spaces
    enter([users, processes])
    pid = os.fork()
    if pid == 0:
        enter(others)
    for descriptor in spaces:
        os.close(descriptor)
    os.setpgid(pid, pid)  # In both, so that whichever goes on first finds the group.
    if pid:
        for descriptor in request.descriptors:
            os.close(descriptor)
        watch(pid, client)
        os._exit(0)
    client.close()
    take_over(request)
    run(request.program[0])


if __name__ == "__main__":
    main()
