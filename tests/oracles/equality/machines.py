"""``python -m tests.oracles.equality.machines``: random strategies and pipelines over machines.

Four ranks train on simulated machines, two on each of two and one on each of four, whose packets
take a delay on their way. Losses and variables are compared with plain TensorFlow's, as
``python -m tests.oracles.equality`` does on one machine. The last line is one JSON object: for each
shape and program the number of results and the worst error by type. The exit status says whether
all results lie within the bars.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.machines import Link, Machines, machines
from tests.oracles.equality.tasks import RANK_THREADS, ROOT, Line

__all__ = ["BARS", "main"]

BARS = {"float32": 1e-4, "float64": 1e-10}
SHAPES = {"2x2": (2, 2), "4x1": (4, 1)}
"""For each name the number of machines and of ranks on each."""

RANKS = 4
MODELS = ("mlp_dropout", "lstm", "transformer", "vgg16", "wide_resnet")
PIPELINE_MODELS = MODELS[:3]
LIMIT_SECONDS = 3600.0


def main() -> int:
    """Run the comparisons; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracles.equality.machines", description=__doc__
    )
    parser.add_argument("--strategies", type=int, default=60, help="over all shapes")
    parser.add_argument("--pipelines", type=int, default=12, help="over all shapes")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS[:3]))
    parser.add_argument("--link", type=Link.parse, default=Link(delay_seconds=1e-3))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    failures = 0
    for place, shape in enumerate(options.shapes):
        count, ranks = SHAPES[shape]
        with machines(count, options.link) as made:
            for program, models in (
                ("strategies", options.models),
                ("pipelines", PIPELINE_MODELS),
            ):
                draws = range(place, getattr(options, program), len(options.shapes))
                lines: list[Line] = []
                for turn, model in enumerate(models):
                    numbers = draws[turn :: len(models)]
                    if numbers:
                        lines += _lines(made, ranks, program, model, options.seed, numbers)
                failures += len(draws) * len(BARS) - len(lines) + sum(map(_fails, lines))
                found.setdefault(shape, {})[program] = _summary(lines)
    print(json.dumps({"machines": found, "bars": BARS, "failures": failures}))
    return 1 if failures else 0


def _lines(
    made: Machines, ranks: int, program: str, model: str, seed: int, numbers: range
) -> list[Line]:
    """Train one model under some draws; what the first rank printed."""
    command = [sys.executable, "-m", f"tests.oracles.equality.{program}", model]
    command += [str(RANKS), str(seed), "", *map(str, numbers)]
    env = {**RANK_THREADS, "TF_CPP_MIN_LOG_LEVEL": "3"}
    # A rank that waits leaves its core to ranks of other simulated machines.
    env["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    # Unbuffered, print() writes a line in pieces, which the launcher marks one by one.
    env["PYTHONUNBUFFERED"] = ""
    ended = made.mpirun(ranks, command, env=env, folder=Path(ROOT)).wait(LIMIT_SECONDS)
    lines = [json.loads(text) for text in ended.of_rank(0) if text.startswith("{")]
    for line in lines:
        wrong = "not equal: " if _fails(line) else ""
        sys.stderr.write(
            f"{wrong}{model} {program} {line['number']} {line['type']}: {line['error']} "
            f"({', '.join(line['kinds'])})\n"
        )
    if ended.status:
        sys.stderr.write(f"{program} of {model} ended with {ended.status}:\n{ended.stderr}\n")
    sys.stderr.flush()
    return lines


def _summary(lines: list[Line]) -> dict[str, Any]:
    """The number of results of each type, and the worst errors."""
    found: dict[str, Any] = {"draws": len(lines) // len(BARS)}
    for dtype in BARS:
        errors = [line["error"] for line in lines if line["type"] == dtype]
        found[f"worst_{dtype}"] = max((e for e in errors if e is not None), default=None)
    return found


def _fails(line: Line) -> bool:
    return line["error"] is None or not line["error"] <= BARS[line["type"]]


if __name__ == "__main__":
    sys.exit(main())
