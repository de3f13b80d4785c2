"""A dry run of a training script on this process alone, up to its plan, check or step."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tensoropt.errors import OptionError
from tensoropt.quiet.standard_error import VERBOSE_VARIABLE, without_chatter

if TYPE_CHECKING:  # the frontend imports TensorFlow, which other subcommands do not need
    from tensoropt.frontend.job.dry_run import DryRun

__all__ = ["check_is_script", "dry_run_script", "hush_tensorflow"]

_LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_NONE_BUT_FATAL = "3"


def check_is_script(script: Path, aim: str) -> None:
    """Check that there is a script, before TensorFlow is loaded to run it.

    Raises:
        OptionError: if there is no such file.
    """
    if not script.is_file():
        got = "a folder" if script.is_dir() else "not there"
        raise OptionError(
            f"a script to {aim} is a Python file. Got {str(script)!r}, which is {got}; give its "
            "path as seen from this folder, before the script's arguments."
        )


def hush_tensorflow() -> None:
    """Import TensorFlow without most lines that it writes; errors of kernels are raised.

    Its C++ writes some of them to standard error whatever the level. Commands that train nothing
    call this.
    """
    if os.environ.get(VERBOSE_VARIABLE) == "1" or "tensorflow" in sys.modules:
        return
    os.environ.setdefault(_LEVEL_VARIABLE, _NONE_BUT_FATAL)
    with without_chatter():
        import tensorflow  # noqa: F401


def dry_run_script(script: Path, arguments: Sequence[str], dry_run: DryRun) -> NoReturn:
    """Run a script until it reaches the aim of the dry run.

    Args:
        script: a Python file, run as ``__main__``.
        arguments: its command line.
        dry_run: the devices to plan for, and the aim.

    Raises:
        PlanReached: at the script's ``build_execution_graph``, with the plan.
        CheckReached: at its ``find_strategy``, with the check, for the aim "check". A script
            without these two calls reaches both at its first training run.
        StepReached: at its ``find_strategy``, with the step, for the aim "profile".
        ProfilingReached: at its ``find_strategy``, with the table, for the aim "profiling".
        OptionError: if there is no such file, or the script ends before it reaches the aim.
    """
    aim = "plan" if dry_run.aim == "profiling" else dry_run.aim
    check_is_script(script, aim)
    from tensoropt.frontend.job.job import in_dry_run

    calls = "init, and find_strategy or trains"
    if dry_run.aim == "plan":
        calls = "init, and find_strategy and build_execution_graph or trains"
    ended = ""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with in_dry_run(dry_run):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        ended = f" with exit status {error.code!r}"
    finally:
        sys.argv, sys.path[:] = argv, path
    raise OptionError(
        f"a script to {aim} calls {calls}. Got the end of {str(script)!r}{ended} before "
        "that; check its arguments."
    )
