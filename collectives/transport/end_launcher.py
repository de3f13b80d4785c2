"""Ends the launcher's processes on this machine, if the end of the job does not end them.

After MPI_Abort a launcher waits until all machines have ended their ranks. A machine that has lost
its network never answers, and its own ranks never hear of the end. So a rank that ends the job
starts a process that kills, some seconds later, the launcher's processes on this machine and
everything below them. The process ends at once if they have ended by themselves.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

__all__ = ["end_later", "launcher"]

_LAUNCHERS = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"),
    *("orterun", "prterun", "orted", "prted"),
)
_PMI_VARIABLE = "PMI_FD"
_GRACE_SECONDS = 5.0  # a launcher whose machines all answer ends in less than one

# Waits until processes have ended, and kills those that have not at the end of the time. The
# arguments are the seconds and descriptors of the processes, whose numbers could be reused.
_PROGRAM = """
import select, signal, sys, time
end = time.monotonic() + float(sys.argv[1])
left = {int(argument) for argument in sys.argv[2:]}
ends = select.poll()
for process in left:
    ends.register(process, select.POLLIN)
while left and time.monotonic() < end:
    for process, _ in ends.poll(1e3 * (end - time.monotonic())):
        ends.unregister(process)
        left.remove(process)
for process in left:
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def end_later(seconds: float = _GRACE_SECONDS) -> None:
    """Have this process, the launcher above it and all processes of the launcher on this machine
    killed after some seconds. Without Linux's /proc this does nothing.
    """
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        return
    parents = _parents()
    top = launcher(parents)
    doomed = [os.getpid(), *([] if top is None else [top, *_below(top, parents)])]
    descriptors = [found for pid in dict.fromkeys(doomed) if (found := _opened(pid)) is not None]
    subprocess.Popen(
        [sys.executable, "-IS", "-c", _PROGRAM, str(seconds), *map(str, descriptors)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
    )


def launcher(parents: dict[int, tuple[str, int]]) -> int | None:
    """The topmost process of the launcher above this process on this machine, None if none is.

    Args:
        parents: for each process its name and its parent.
    """
    top, pid = None, _starter()
    while pid in parents:
        name, parent = parents[pid]
        top = pid if name in _LAUNCHERS else top
        pid = parent
    return top


def _starter() -> int:
    """The launcher's process that started this rank, by the socket that MPICH's launcher gives it;
    the parent if there is no socket."""
    try:
        with socket.socket(fileno=os.dup(int(os.environ[_PMI_VARIABLE]))) as other_end:
            credentials = other_end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except (KeyError, ValueError, OSError):
        return os.getppid()
    pid: int = struct.unpack("3i", credentials)[0]
    return pid or os.getppid()


def _parents() -> dict[int, tuple[str, int]]:
    """For each process on this machine its name and its parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state parent ...", where the name may itself hold blanks and brackets.
            text, _, rest = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
        except OSError:
            continue  # it has ended
        found[int(folder.name)] = text.partition("(")[2], int(rest.split()[1])
    return found


def _below(ancestor: int, parents: dict[int, tuple[str, int]]) -> list[int]:
    """The processes below a process."""
    found = [ancestor]
    for pid in found:  # it grows
        found += [child for child, (_, parent) in parents.items() if parent == pid]
    return found[1:]


def _opened(pid: int) -> int | None:
    """A descriptor of a process; None if it has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
