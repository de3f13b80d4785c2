"""Guards of a script that a launcher has started on several ranks, from ``import tensoropt`` on.

A rank that fails before `init` ends the job, because the other ranks would wait for it forever.

A script that imports TensorOpt and forgets `parallelize` trains a separate copy on every rank. If a
launcher has started several ranks, the first gradient tape or session imports the front end, which
refuses copies (`frontend.job.copies`). The guards import neither MPI nor TensorFlow: they wait
until the script imports TensorFlow. In a process without a launcher they do nothing.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any, TypeAlias

from tensoropt.elastic.rank_variables import THREADS_VARIABLE
from tensoropt.garbage import importing

__all__ = [
    "FORWARDING_SECONDS",
    "Hook",
    "call_hook",
    "end_job_on_error",
    "filter_standard_error",
    "hook_of_script",
    "refuse_copies",
    "several_ranks",
    "share_cores",
]

FORWARDING_SECONDS = 0.5
"""Time for the launcher to pass on a printed error before it ends the job."""
_SRUN_VARIABLE = "SLURM_STEP_ID"
_SRUN = " srun ends the other ranks only with --kill-on-bad-exit=1."

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_TENSORFLOW = "tensorflow"
_POOL_THREADS = "TF_NUM_INTRAOP_THREADS"

Hook: TypeAlias = Callable[[type[BaseException], BaseException, "TracebackType | None"], Any]

_before: Hook | None = None  # the excepthook that `_end_job` replaces; None if it does not
_has_joined = False  # whether `init` handles errors


def several_ranks() -> int:
    """The number of processes that a launcher has started; 0 for a single process.

    Launchers set an environment variable to the rank. Without one, nothing more is imported.
    """
    if not any(variable in os.environ for variable in _RANKS):
        return 0
    launch = importlib.import_module("collectives.transport.launch").detect()
    processes = 0 if launch is None or launch.processes is None else int(launch.processes)
    return processes if processes > 1 else 0


def end_job_on_error() -> None:
    """Make a rank that fails before `init` end the job, if a launcher has started several ranks.

    The rank has not joined MPI and cannot abort the job, but a launcher ends a job when one of its
    processes is killed by a signal (MPICH's does not at exit status 1).
    """
    global _before
    if _before is None and several_ranks():
        _before, sys.excepthook = sys.excepthook, _end_job


def filter_standard_error() -> None:
    """Hold back chatter of libraries if a launcher has started this process; see `quiet`."""
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), None)
    if rank is not None or os.environ.get("TENSOROPT_LOG"):
        filters = importlib.import_module("tensoropt.quiet.standard_error")
        filters.filter_standard_error(rank)


def hook_of_script() -> Hook:
    """The excepthook of the script, for `init`, from which on the one set here does nothing."""
    global _has_joined
    _has_joined = True
    return _before if _before and sys.excepthook is _end_job else sys.excepthook


def call_hook(hook: Callable[..., Any], *args: Any) -> None:
    """Call a hook of the script. If it fails too, the job still ends for the first error."""
    try:
        hook(*args)
    except Exception:
        traceback.print_exc()


def _end_job(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _has_joined:  # a hook that the script has set since the import calls this one
        return
    if _before is not None and _before is not sys.__excepthook__:
        call_hook(_before, kind, error, trace)
    sys.stdout.flush()
    text = "".join(traceback.format_exception(kind, error, trace))
    hint = _SRUN if _SRUN_VARIABLE in os.environ else ""
    sys.stderr.write(f"{text}tensoropt: a rank ends the job before init, after the above.{hint}\n")
    sys.stderr.flush()
    time.sleep(FORWARDING_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _trains_together() -> bool:
    """Whether a launcher has started several ranks, and the script may not train copies."""
    return os.environ.get("TENSOROPT_ALLOW_COPIES") != "1" and several_ranks() > 0


def refuse_copies() -> None:
    """Let the first tape or session import the front end, if a launcher has started several ranks.

    The environment variable ``TENSOROPT_ALLOW_COPIES`` set to 1 allows copies.
    """
    if not _trains_together():
        return
    module = sys.modules.get(_TENSORFLOW)
    if module is None:
        sys.meta_path.insert(0, _BeforeTensorFlow())
    elif hasattr(module, "GradientTape"):  # else the front end is importing TensorFlow just now
        _watch(module)


def share_cores() -> None:
    """Let TensorFlow's operators use this rank's share of the cores, if a launcher has started
    several ranks on this machine.

    A process has one pool of threads for them, made with the first eager tensor or session. By
    default it has a thread for each core that the rank may use. Keras makes a model's variables
    before `init`, so without this each rank would divide its operators among all cores. A number
    that the environment or ``tf.config.threading`` gives counts.
    """
    if not _trains_together():
        return
    launch = importlib.import_module("collectives.transport.launch")
    local = launch.detect().local_processes or 1
    demanded = os.environ.get(THREADS_VARIABLE, "")
    if local > 1 or demanded:
        bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else local
        share = min(bound, max(1, launch.available_cores() // local))
        os.environ.setdefault(_POOL_THREADS, demanded or str(share))


class _BeforeTensorFlow(MetaPathFinder):
    """Finds TensorFlow through the other finders, and calls `_watch` after its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of TensorFlow; None for other modules. Python calls this."""
        if name != _TENSORFLOW:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._watch_after(spec.loader)
        return spec

    def _watch_after(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            with importing():
                load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _watch(module)

        loader.exec_module = exec_module


def _watch(tensorflow: Any) -> None:
    """Import the front end when the script makes its first tape or session."""
    session = next(
        kind for kind in tensorflow.compat.v1.Session.__mro__ if kind.__name__ == "BaseSession"
    )
    constructors = {kind: kind.__init__ for kind in (tensorflow.GradientTape, session)}

    def first(original: Callable[..., None]) -> Callable[..., None]:
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            for kind, constructor in constructors.items():
                kind.__init__ = constructor
            importlib.import_module("tensoropt.frontend")
            original(self, *args, **kwargs)

        return make

    for kind, constructor in constructors.items():
        kind.__init__ = first(constructor)
