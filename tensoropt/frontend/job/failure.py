"""A rank that fails ends the whole job; the reason is printed once."""

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

__all__ = ["end_job", "install", "install_before_init"]

_HOST_TURN_SECONDS = 1.0
_LONGEST_TURN_SECONDS = 4.0
_FORWARDING_SECONDS = 0.5
_ABORT_SECONDS = 8.0
_ENTRY_BYTES = 8


def install_before_init() -> None:
    """Let a rank that fails before `init` end the job: the others would wait for it forever.

    It has not joined MPI and cannot abort the job, but a launcher ends a job when one of its
    processes is killed by a signal (MPICH's does not at exit status 1).
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
    """Handle a script that fails or ends on this rank. Collective: every rank calls it.

    Args:
        group: all ranks of the job.
        at_end: called when the script ends without an error; it may raise, if the other ranks
            have not reached their end.

    Often several ranks fail at once. The first one on each machine prints the reason and ends the
    job, the others print nothing and wait to be ended; machines do so one after another.
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

    global _fail
    _fail = fail
    sys.excepthook = fail
    atexit.register(end)


_fail: Callable[[type[BaseException], BaseException, TracebackType | None], None] | None = None


def end_job(error: BaseException) -> None:
    """End the job for an error on this rank, from any thread; `install` has been called."""
    assert _fail is not None, "installed"
    _fail(type(error), error, error.__traceback__)


def _reason(
    rank: int, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> str:
    """What a failed rank prints: the traceback, for TensorOpt's own errors only its lines in the
    script; the last line names the rank."""
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
    """A temporary file that the ranks of this machine share, unlinked once all have opened it.

    None where a rank cannot open it (each rank in a container of its own); such a rank prints its
    own reason.
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
    """Record this rank as failed, and return whether it is the first of its machine."""
    if register is None:
        return True
    os.write(register, rank.to_bytes(_ENTRY_BYTES, "big"))  # appending is atomic
    return int.from_bytes(os.pread(register, _ENTRY_BYTES, 0), "big") == rank
