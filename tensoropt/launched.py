"""Guards against training of unconnected copies, from ``import tensoropt`` on.

A script that imports TensorOpt and forgets `parallelize` trains a separate copy on every rank. If a
launcher has started several ranks, the first gradient tape or session imports the front end, which
refuses copies (`frontend.job.copies`). The guard imports neither MPI nor TensorFlow: it waits until
the script imports TensorFlow. In a process without a launcher it does nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["refuse_copies", "several_ranks"]

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_TENSORFLOW = "tensorflow"


def several_ranks() -> int:
    """The number of processes that a launcher has started; 0 for a single process.

    Launchers set an environment variable to the rank. Without one, nothing more is imported.
    """
    if not any(variable in os.environ for variable in _RANKS):
        return 0
    launch = importlib.import_module("collectives.transport.launch").detect()
    processes = 0 if launch is None or launch.processes is None else int(launch.processes)
    return processes if processes > 1 else 0


def refuse_copies() -> None:
    """Let the first tape or session import the front end, if a launcher has started several ranks.

    The environment variable ``TENSOROPT_ALLOW_COPIES`` set to 1 allows copies.
    """
    if os.environ.get("TENSOROPT_ALLOW_COPIES") == "1" or not several_ranks():
        return
    module = sys.modules.get(_TENSORFLOW)
    if module is None:
        sys.meta_path.insert(0, _BeforeTensorFlow())
    elif hasattr(module, "GradientTape"):  # else the front end is importing TensorFlow just now
        _watch(module)


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
