"""The trials of one environment, each in processes of its own."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracles.versions.environments import ROOT

__all__ = ["Cell", "tried"]

_SECONDS = 1200
_LOSSES_DIFFER = 2e-4  # two units of the last of four printed decimals
_FIT_BAR = 1e-4  # of float32 sums in another order, over three epochs
_PACKAGES = ("tensorflow", "keras", "numpy", "mpi4py", "numba", "tensoropt")
_VERSIONS = f"""
import json, platform, sys
from importlib.metadata import version
print(json.dumps({{"python": platform.python_version(),
    **{{name: version(name) for name in {_PACKAGES}}}}}))
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome for one pair of versions.

    Attributes:
        python, tensorflow: the versions that were asked for.
        state: "passed", "failed" or "not available".
        reason: of a failure or an absence; otherwise empty.
        installed: versions of packages, as pip chose them.
        trials: seconds of each trial that has passed.
        seconds: of installation and trials.
    """

    python: str
    tensorflow: str
    state: str
    reason: str = ""
    installed: Mapping[str, str] = field(default_factory=dict)
    trials: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def tried(python: str, tensorflow: str, environment: Path, seconds: Callable[[], float]) -> Cell:
    """Try what is installed in an environment.

    Args:
        python, tensorflow: the versions, for the cell.
        environment: its folder, in which the trials make theirs.
        seconds: the time since the cell's begin.
    """
    installed: dict[str, str] = {}
    trials: dict[str, float] = {}
    try:
        installed.update(json.loads(_run(environment, ["-c", _VERSIONS])))
        for name, trial in _TRIALS.items():
            begun = seconds()
            trial(environment)
            trials[name] = round(seconds() - begun, 1)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        name = list(_TRIALS)[len(trials)] if installed else "versions"
        reason = f"{name}: {error}"
        return Cell(python, tensorflow, "failed", reason, installed, trials, seconds())
    return Cell(python, tensorflow, "passed", "", installed, trials, seconds())


def _quick_start(environment: Path) -> None:
    """The documentation's program on one process and on two ranks: falling losses, the same."""
    page = (ROOT / "docs" / "quick-start.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    folder = environment / "quick-start"
    folder.mkdir()
    (folder / "train.py").write_text(program)
    one, two = (_losses(_run(environment, ["train.py"], folder, ranks)) for ranks in (1, 2))
    if not one[-1] < one[0]:
        raise RuntimeError(f"losses fall. Got {one}")
    if max(abs(a - b) for a, b in zip(one, two, strict=True)) > _LOSSES_DIFFER:
        raise RuntimeError(f"losses of one and two ranks are the same. Got {one} and {two}")


def _losses(output: str) -> list[float]:
    """The losses in the last line, after the plan's."""
    *_, plan, losses = output.splitlines()
    if "operators" not in plan:
        raise RuntimeError(f"the quick start prints its plan. Got {plan!r}")
    return [float(loss) for loss in ast.literal_eval(losses)]


def _equality(environment: Path) -> None:
    """Two random strategies of a perceptron, beside plain TensorFlow, in float32 and float64."""
    folder = environment / "checks"  # without the checkout's packages
    without = shutil.ignore_patterns("__pycache__")
    for name in ("tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=without)
    draws = ("--models", "mlp", "--strategies", "2", "--mpi-strategies", "0", "--devices", "2")
    output = _run(environment, ["-m", "tests.oracles.equality", *draws], folder)
    found = json.loads(output.splitlines()[-1])
    if found["models"]["mlp"]["drawn"] != 4:
        raise RuntimeError(f"two strategies of two types are trained. Got {found}")


def _fit(environment: Path) -> None:
    """``fit`` of a convolutional model on two ranks, beside Keras's own: losses and weights."""
    program = str(Path(__file__).with_name("fit.py"))
    ours = json.loads(_run(environment, [program], environment, 2).splitlines()[-1])
    plain = json.loads(_run(environment, [program, "--plain"], environment).splitlines()[-1])
    if ours["ranks"] != 2:
        raise RuntimeError(f"fit runs on two ranks. Got {ours['ranks']}")
    differences = [
        max(abs(a - b) for a, b in zip(some, others, strict=True)) / max(map(abs, others))
        for some, others in zip(ours["numbers"], plain["numbers"], strict=True)
    ]
    if not max(differences) <= _FIT_BAR:
        raise RuntimeError(f"fit is Keras's own within {_FIT_BAR}. Got {differences}")


_TRIALS: dict[str, Callable[[Path], None]] = {
    "quick start": _quick_start,
    "equality": _equality,
    "fit on 2 ranks": _fit,
}


def _run(
    environment: Path, command: Sequence[str], folder: Path | None = None, ranks: int = 1
) -> str:
    """Run the environment's Python with caches of its own; return its standard output.

    Raises:
        RuntimeError: it fails, with the end of its errors.
        TimeoutExpired: it does not end.
    """
    programs = environment / "bin"
    launcher = [str(programs / "mpirun"), "-np", str(ranks)] if ranks > 1 else []
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XDG_CACHE_HOME": str(environment / "caches"),
    }
    done = subprocess.run(
        [*launcher, str(programs / "python"), *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=variables,
        cwd=folder or environment,
    )
    if done.returncode:
        said = " ".join(done.stderr.split())[-1000:]
        raise RuntimeError(said or f"exit status {done.returncode}")
    return done.stdout
