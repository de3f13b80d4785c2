"""Import Horovod's module on demand, and start Horovod for the ranks of a group."""

from __future__ import annotations

import atexit
import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from collectives.errors import TransportError
from collectives.group import Group

__all__ = ["INSTALL", "horovod_module", "start"]

INSTALL = (
    "HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 "
    "HOROVOD_WITHOUT_MXNET=1 pip install --no-build-isolation horovod==0.28.1"
)
"""The command that installs Horovod, after ``pip install 'tensoropt[mpi,horovod-build]'``."""


_started: set[Callable[[], None]] = set()


@atexit.register
def _stop() -> None:
    """Shut Horovod down at the end of the process.

    Horovod ends on all ranks when it ends on one rank, so the first rank that leaves its script
    must not end it. `atexit` runs functions in reverse order: this one is registered before the
    job's agreement that all ranks have ended, and so runs after that agreement."""
    for shutdown in _started:
        shutdown()


def horovod_module(group: Group) -> Any:
    """Return ``horovod.tensorflow``. Every member of the group calls, after MPI has started.

    Raises:
        TransportError: on every member, if one member cannot import Horovod, or has a Horovod that
            was built without MPI.
    """
    module, problem = None, ""
    try:
        module = importlib.import_module("horovod.tensorflow")
    except (ImportError, OSError, tf.errors.OpError) as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    if module is not None and not module.mpi_built():
        problem = "a Horovod that was built without MPI"
    for rank, each in zip(group.ranks, group.allgather_object(problem), strict=True):
        if each:
            raise TransportError(
                "collectives through Horovod need one that was built here, with TensorFlow (2.18 "
                f"or older) and MPI. Got on rank {rank}: {each}\nInstall it with\n"
                f"  pip install 'tensoropt[mpi,horovod-build]'\n  {INSTALL}\n"
                "or leave Horovod out."
            )
    return module


def start(module: Any, group: Group) -> None:
    """Start Horovod with the ranks of the group. Every member calls.

    If the script has started Horovod on the same ranks, that Horovod stays in use.

    Raises:
        TransportError: if MPI was started for fewer threads than Horovod needs.
    """
    if module.is_initialized() and module.size() != group.size:
        module.shutdown()
    if not module.is_initialized():
        module.init(comm=list(group.ranks), process_sets="dynamic")
    atexit.unregister(module.shutdown)
    _started.add(module.shutdown)
    if not module.mpi_threads_supported():
        raise TransportError(
            "Horovod calls MPI in a thread of its own, so MPI's thread level is multiple. Got a "
            "lower one: leave mpi4py.rc.thread_level as it is, or use an MPI built with threads."
        )
