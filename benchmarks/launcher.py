"""Runs a benchmark's program as a job of its own, whose ranks write their figures to files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensoropt.elastic.launcher import mpirun
from tensoropt.errors import OptionError

__all__ = ["figures_of_ranks"]

_LIMIT_SECONDS = 900.0


def figures_of_ranks(
    module: str, arguments: Callable[[str], Sequence[str]], ranks: int | None, plans: str
) -> list[Any]:
    """Run a module and return what each rank has written to ``rank-*.json``, as JSON values.

    Args:
        module: the program.
        arguments: its arguments, from the folder for the files.
        ranks: the number of ranks under mpirun; None for a process without it.
        plans: the folder of kept plans, which exists; "none" to plan anew.

    Raises:
        OptionError: if there is no such folder.
        RuntimeError: if the job fails.
    """
    if plans != "none" and not Path(plans).is_dir():
        raise OptionError(
            f"plans are kept in a folder that exists, or nowhere. Got plans={plans!r}; make the "
            'folder, or give "none".'
        )
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    launcher = [] if ranks is None else [mpirun(), "-np", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [*launcher, sys.executable, "-m", module, *arguments(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**environment, "TENSOROPT_PLANS": plans},
            timeout=_LIMIT_SECONDS,
        )
        if ended.returncode:
            raise RuntimeError(f"a job ends well. Got {ended.returncode}:\n{ended.stderr}")
        return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]
