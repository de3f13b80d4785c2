"""Runs a benchmark's program as a job of its own, whose ranks write their figures to files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensoropt.elastic.launcher import mpirun
from tensoropt.errors import OptionError

__all__ = ["figures_of_ranks", "result_of", "run_job"]

_LIMIT_SECONDS = 3600.0
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def figures_of_ranks(
    module: str,
    arguments: Callable[[str], Sequence[str]],
    ranks: int | None,
    plans: str,
    environment: Mapping[str, str] = _NO_VARIABLES,
) -> list[Any]:
    """Run a module and return what each rank has written to ``rank-*.json``, as JSON values.

    Args:
        module: the program.
        arguments: its arguments, from the folder for the files.
        ranks: the number of ranks under mpirun; None for a process without it.
        plans: the folder of kept plans, which exists; "none" to plan anew.
        environment: further environment variables.

    Raises:
        OptionError: if there is no such folder.
        RuntimeError: if the job fails.
    """
    if plans != "none" and not Path(plans).is_dir():
        raise OptionError(
            f"plans are kept in a folder that exists, or nowhere. Got plans={plans!r}; make the "
            'folder, or give "none".'
        )
    with tempfile.TemporaryDirectory() as folder:
        variables = {"TENSOROPT_PLANS": plans, **environment}
        run_job(["-m", module, *arguments(folder)], ranks, variables)
        return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]


def result_of(
    module: str,
    arguments: Sequence[object],
    ranks: int | None,
    environment: Mapping[str, str] = _NO_VARIABLES,
    prefix: Sequence[str] = (),
) -> Any:
    """Run a module whose last argument is the path of its result, and return that as JSON values.

    The other arguments are those of `run_job`.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_job(["-m", module, *arguments, result], ranks, environment, prefix)
        return json.loads(result.read_text())


def run_job(
    program: Sequence[object],
    ranks: int | None,
    environment: Mapping[str, str] = _NO_VARIABLES,
    prefix: Sequence[str] = (),
) -> str:
    """Run Python with some arguments as a job, and return its output.

    Args:
        program: the arguments.
        ranks: the number of ranks under mpirun; None for a process without it.
        environment: further environment variables.
        prefix: a command that starts the job, such as taskset.

    Raises:
        RuntimeError: if the job fails.
    """
    launcher = [] if ranks is None else [mpirun(), "-np", str(ranks)]
    ended = subprocess.run(
        [*prefix, *launcher, sys.executable, *map(str, program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            **environment,
        },
        timeout=_LIMIT_SECONDS,
    )
    if ended.returncode:
        raise RuntimeError(f"a job ends well. Got {ended.returncode}:\n{ended.stderr}")
    return ended.stdout
