"""What `import tensoropt` does in a process that a launcher has started as one of several.

A script that imports TensorOpt and forgets `parallelize` trains a copy on every rank. So the first
gradient tape or session of such a process imports the front end, which refuses copies
(`frontend.job.copies`). The import itself starts no MPI and imports no TensorFlow: it waits for the
script to do so. In a process without a launcher it changes nothing.
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
    """The number of processes that a launcher has started, where it is more than one; else 0.

    Launchers set a variable with the rank. Where none has, nothing else is imported to look.
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
    elif hasattr(
        module, "GradientTape"
    ):  # else it is being imported now, by the front end's modules
        _watch(module)


class _BeforeTensorFlow(MetaPathFinder):
    """Finds TensorFlow as the other finders do; once it has been imported it is watched."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As Python calls it."""
        if name != _TENSORFLOW:
            return None
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(name, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
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
    """Import the front end where the first tape or session is made."""
    session = next(
        kind for kind in tensorflow.compat.v1.Session.__mro__ if kind.__name__ == "BaseSession"
    )
    kinds = {kind: kind.__init__ for kind in (tensorflow.GradientTape, session)}

    def first(original: Callable[..., None]) -> Callable[..., None]:
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            for kind, own in kinds.items():
                kind.__init__ = own
            importlib.import_module("tensoropt.frontend")
            original(self, *args, **kwargs)

        return make

    for kind, own in kinds.items():
        kind.__init__ = first(own)
