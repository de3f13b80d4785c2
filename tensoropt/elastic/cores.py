"""The cores and threads of each rank, as MPICH's and Open MPI's ``mpirun`` take them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from tensoropt.elastic.rank_variables import THREADS_VARIABLE

__all__ = ["BINDINGS", "Binding", "Cores"]

Binding = Literal["none", "core", "socket"]
BINDINGS: tuple[Binding, ...] = ("none", "core", "socket")

_OPEN_MP = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores that each rank may use, and its threads.

    Attributes:
        threads: number of threads of a rank; None if the ranks of a machine share its cores.
        binding: "core" binds a rank to as many cores as it has threads, one by default; "socket"
            to the cores of one processor; "none" to no cores.
    """

    threads: int | None = None
    binding: Binding = "none"

    def of_mpich(self) -> list[str]:
        """The options of MPICH's launcher, which binds no rank by default."""
        if self.binding == "none":
            return []
        width = f":{self.threads or 1}" if self.binding == "core" else ""
        return ["-bind-to", f"{self.binding}{width}"]

    def of_open_mpi(self) -> list[str]:
        """The options of Open MPI's launcher, which binds one or two ranks to a core by default."""
        place = f"slot:PE={self.threads or 1}" if self.binding == "core" else ""
        level = "package" if self.binding == "socket" else self.binding  # its name since version 5
        return ["--bind-to", level, "--map-by", f"{place}:OVERSUBSCRIBE"]

    def variables(self) -> dict[str, str]:
        """The environment of a rank. A number of OpenMP's threads that is set already stays."""
        if self.threads is None:
            return {}
        threads = str(self.threads)
        return {THREADS_VARIABLE: threads, _OPEN_MP: os.environ.get(_OPEN_MP, threads)}
