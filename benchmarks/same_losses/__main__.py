"""``python -m benchmarks.same_losses``: whole trainings that end at the same place.

A language model and a small image network are trained by plain TensorFlow, and on two ranks under
data parallelism, ``mini_time``, a pipeline with microbatches, rewriting, and gradients in bfloat16.
The last one trains on two simulated machines (`tests.machines`), because gradients are rounded
between machines alone. Plain TensorFlow with the examples of each batch in reverse shows the
differences that rounding alone makes. The last line is one JSON object; with ``--picture``, there
is a picture, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.launcher import result_of
from benchmarks.same_losses.differences import difference, draw
from benchmarks.same_losses.networks import NETWORKS
from benchmarks.same_losses.ways import PLAIN, WAYS
from tensoropt.report.text_table import table
from tests.machines import Link, machines
from tests.machines.available import why_not

__all__ = ["main"]

_PROGRAM = "benchmarks.same_losses.trained"
_ROUNDED = "bfloat16"
_LINK = "rate 10gbit"
_LIMIT_SECONDS = 3600.0
_SHOWN = ("first_hundred", "all", "end", "end_smoothed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the differences, and end with the JSON line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_losses", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--picture", type=Path, help="a .png, .svg or .pdf file")
    parser.add_argument("--keep", type=Path, help="a folder: its networks are not trained again")
    options = parser.parse_args(arguments)
    missing = why_not() if _ROUNDED in options.ways else ""
    if missing:
        print(f"without {_ROUNDED}: no machines can be simulated here, {missing}")
        options.ways.remove(_ROUNDED)
    found = {name: _kept(name, options) for name in options.networks}
    differences = {
        name: {
            way: difference(of[PLAIN]["losses"], told["losses"])
            | {key: told[key] for key in ("plan", "substitutions") if key in told}
            for way, told in of.items()
            if way != PLAIN
        }
        for name, of in found.items()
    }
    for name, of in differences.items():
        rows = [[way, *(f"{told[key]:.2g}" for key in _SHOWN)] for way, told in of.items()]
        print(f"{name}, {options.steps} steps")
        print(table(["way", *_SHOWN], rows, [False, *[True] * len(_SHOWN)]))
    if options.picture is not None:
        losses = {
            name: {way: told["losses"] for way, told in of.items()} for name, of in found.items()
        }
        draw(losses, options.picture)
    print(json.dumps({"steps": options.steps, "networks": differences}))


def _kept(network: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the losses of all ways of a network, from the folder of `--keep` if they are there."""
    if options.keep is None:
        return _losses(network, options)
    options.keep.mkdir(parents=True, exist_ok=True)
    file = options.keep / f"{network}.json"
    if not file.exists():
        file.write_text(json.dumps(_losses(network, options)))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _losses(network: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the losses of all ways of a network, plain TensorFlow's first."""
    together = [way for way in options.ways if way != _ROUNDED]
    given = [network, str(options.steps)]
    found: dict[str, Any] = result_of(_PROGRAM, ["plain", *given], None, _environment(""))
    if together:
        found |= result_of(_PROGRAM, [",".join(together), *given], 2, _environment(""))
    if len(together) < len(options.ways):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "losses.json"
            with machines(2, Link.parse(_LINK)) as made:
                program = [sys.executable, "-m", _PROGRAM, _ROUNDED, *given, str(result)]
                ended = made.mpirun(1, program, env=_environment(folder)).wait(_LIMIT_SECONDS)
            if ended.status:
                raise RuntimeError(f"a job ends well. Got {ended.status}:\n{ended.stderr}")
            found |= json.loads(result.read_text())
    return found


def _environment(folder: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    kept = {"TENSOROPT_PLANS": "none", "TENSOROPT_PROFILE": "none", "TENSOROPT_PROFILES": folder}
    return {**kept, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


if __name__ == "__main__":
    main()
