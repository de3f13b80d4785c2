"""Finds mpirun."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ["mpirun"]


def mpirun() -> str:
    """The path of mpirun: beside the interpreter, otherwise on PATH.

    Raises:
        RuntimeError: if there is no mpirun.
    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise RuntimeError(
            "ranks are started by mpirun. Got none beside the interpreter and none on PATH. "
            "Install it with: pip install 'tensoropt[mpi]'"
        )
    return found
