"""A rank that fails ends the whole job, and its reason stands once in the output."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from collectives import Group
from collectives.transport.launch import detect
from tensoropt.errors import TensorOptError

__all__ = ["install", "install_before_init"]

_HOST_TURN_SECONDS = 1.0
_LONGEST_TURN_SECONDS = 4.0
_FORWARDING_SECONDS = 0.5
_ABORT_SECONDS = 8.0
_ENTRY_BYTES = 8


def install_before_init() -> None:
    """Let a rank that fails before it has joined the others end the job all the same.

    They would wait for it for ever. It cannot abort what it is not part of, but a launcher ends
    the job when a process of it dies of a signal (MPICH's does not when it ends with status 1).
    """
    launch = detect()
    if launch is None or launch.processes == 1:
        return

    def fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stdout.flush()
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(f"{text}tensoropt: a rank ends the job before init, after the above.\n")
        sys.stderr.flush()
        time.sleep(_FORWARDING_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    sys.excepthook = fail


def install(group: Group, at_end: Callable[[], None]) -> None:
    """Take over what happens when this rank's script fails or ends. Every rank calls.

    Args:
        group: all ranks of the job.
        at_end: called when the script ends without an error; it may raise, if the other ranks
            have not reached their end.

    An error usually meets several ranks at once. The first on its machine prints the reason and
    ends the job, the others wait for that in silence; machines take turns.
    """
    register = _shared_register(group)
    failed = False

    def fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal failed
        failed = True
        if _is_first(register, group.rank):
            machine = list(dict.fromkeys(group.hosts)).index(group.host)
            time.sleep(min(machine * _HOST_TURN_SECONDS, _LONGEST_TURN_SECONDS))
            sys.stdout.flush()
            sys.stderr.write(_reason(group.rank, kind, error, trace))
            sys.stderr.flush()
            time.sleep(_FORWARDING_SECONDS)  # the launcher drops what it has not passed on
        else:
            time.sleep(_ABORT_SECONDS)  # the first is about to end this process
        try:
            group.abort(1)
        finally:
            os._exit(1)  # the launcher is killing this process; leave nothing more to print

    def end() -> None:
        if failed:
            return
        try:
            at_end()
        except BaseException as error:
            fail(type(error), error, error.__traceback__)

    sys.excepthook = fail
    atexit.register(end)


def _reason(
    rank: int, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> str:
    """What a failed rank prints: the script's own lines for an error that explains itself, the
    whole traceback for any other; the last line says who ends the job."""
    if not isinstance(error, TensorOptError):
        text = "".join(traceback.format_exception(kind, error, trace))
        return f"{text}tensoropt: rank {rank} ends the job, after {kind.__name__}.\n"
    here = str(Path(__file__).resolve().parents[2]) + os.sep
    frames = traceback.extract_tb(trace)
    script = [frame for frame in frames if not frame.filename.startswith(here)]
    return (
        "".join(traceback.format_list(script))
        + f"tensoropt: rank {rank} ends the job: {kind.__name__}: {error}\n"
    )


def _shared_register(group: Group) -> int | None:
    """A file that the ranks of this machine share, without a name: nothing is left behind.

    None where a rank cannot open what its neighbour made (containers of their own); such a rank
    prints for itself.
    """
    own = ""
    if group.local_rank() == 0:
        descriptor, own = tempfile.mkstemp(prefix="tensoropt-")
        os.close(descriptor)
    paths = group.allgather_object(own)
    path = next(
        path for path, host in zip(paths, group.hosts, strict=True) if path and host == group.host
    )
    try:
        register = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        register = None
    group.barrier()
    if own:
        os.unlink(own)
    return register


def _is_first(register: int | None, rank: int) -> bool:
    """Enter this rank as failed; whether it is the first of its machine."""
    if register is None:
        return True
    os.write(register, rank.to_bytes(_ENTRY_BYTES, "big"))  # appending is atomic
    return int.from_bytes(os.pread(register, _ENTRY_BYTES, 0), "big") == rank
