"""Handling of errors: a rank that fails ends the whole job, and the reason is printed once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from collectives import Group
from tensoropt.errors import TensorOptError
from tensoropt.launched import FORWARDING_SECONDS, Hook, call_hook, hook_of_script

__all__ = ["end_job", "install"]

_HOST_TURN_SECONDS = 1.0  # between the first failing ranks of two machines
_LONGEST_TURN_SECONDS = 4.0
_ABORT_SECONDS = 8.0  # a rank that waits to be ended ends itself after this time
_ENTRY_BYTES = 8  # of a rank's number in the register

_fail: Hook | None = None  # of `install`
_scripts_own: Hook = sys.__excepthook__  # the excepthook that the script had set


def _tell_script(*error: Any) -> None:
    if _scripts_own is not sys.__excepthook__:
        call_hook(_scripts_own, *error)


def install(group: Group, at_end: Callable[[], None]) -> None:
    """Handle a script that fails or ends on this rank. Collective: every rank calls it.

    Args:
        group: all ranks of the job.
        at_end: called when the script ends without an error. It may raise an error if the other
            ranks have not reached their end.

    Often several ranks fail at once. The first one on each machine prints the reason and ends the
    job; the others print nothing and wait to be ended. Machines take turns. An error in a thread
    ends the job, too, because other threads could wait for it forever. Hooks that the script has
    set are called first.
    """
    register = _shared_register(group)
    failing = threading.Lock()

    def fail(
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
        tell: Hook = _tell_script,
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the job is ending
        if not failing.acquire(blocking=False):
            time.sleep(_ABORT_SECONDS)  # another thread is about to end this process
            os._exit(1)
        tell(kind, error, trace)
        if _is_first(register, group.rank):
            machine = list(dict.fromkeys(group.hosts)).index(group.host)
            time.sleep(min(machine * _HOST_TURN_SECONDS, _LONGEST_TURN_SECONDS))
            sys.stdout.flush()
            sys.stderr.write(_reason(group.rank, kind, error, trace))
            sys.stderr.flush()
            time.sleep(FORWARDING_SECONDS)  # the launcher drops text that it has not passed on
        else:
            time.sleep(_ABORT_SECONDS)  # the first is about to end this process
        try:
            group.abort(1)
        finally:
            os._exit(1)  # the launcher is killing this process; leave nothing more to print

    def end() -> None:
        if failing.locked():
            return
        try:
            at_end()
        except BaseException as error:
            fail(type(error), error, error.__traceback__)

    scripts_own = threading.excepthook

    def fail_in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is SystemExit:
            return
        error = args.exc_value or args.exc_type()
        fail(args.exc_type, error, args.exc_traceback, lambda *_: tell_thread(args))

    def tell_thread(args: threading.ExceptHookArgs) -> None:
        if scripts_own is not threading.__excepthook__:
            call_hook(scripts_own, args)

    global _fail, _scripts_own
    if sys.excepthook is not _fail:  # of an earlier call, which the script has not replaced
        _scripts_own = hook_of_script()
    sys.excepthook = _fail = fail
    threading.excepthook = fail_in_thread
    atexit.register(end)


def end_job(error: BaseException) -> None:
    """End the job because of an error on this rank, from any thread. `install` comes first."""
    assert _fail is not None, "installed"
    _fail(type(error), error, error.__traceback__)


def _reason(
    rank: int, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> str:
    """The text that a failed rank prints: the traceback, and a last line that names the rank.

    For TensorOpt's own errors the traceback has only lines of the script.
    """
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

    None if this rank cannot open it (each rank in a container of its own); the rank then prints its
    own reason.
    """
    own_path = ""
    if group.local_rank() == 0:
        descriptor, own_path = tempfile.mkstemp(prefix="tensoropt-")
        os.close(descriptor)
    paths = group.allgather_object(own_path)
    path = next(
        path for path, host in zip(paths, group.hosts, strict=True) if path and host == group.host
    )
    try:
        register = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        register = None
    group.barrier()
    if own_path:
        os.unlink(own_path)
    return register


def _is_first(register: int | None, rank: int) -> bool:
    """Record this rank as failed, and return whether it is the first of its machine."""
    if register is None:
        return True
    os.write(register, rank.to_bytes(_ENTRY_BYTES, "big"))  # appending is atomic
    return int.from_bytes(os.pread(register, _ENTRY_BYTES, 0), "big") == rank
