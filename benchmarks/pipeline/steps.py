"""``python -m benchmarks.pipeline.steps``: steps of pipelines, predicted and measured.

Each model is trained on ranks of this machine after ``tensoropt profile``: the perceptron under a
memory limit that only a pipeline fits, the other models in two stages. The program prints the step
time and the peak memory of the rank with the largest values, predicted and measured. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import tensoropt as tf
from benchmarks.launcher import result_of, run_job
from benchmarks.pipeline import trained
from benchmarks.pipeline.trained import MODELS
from tensoropt.errors import InfeasibleError

__all__: list[str] = []

_MICROBATCHES = (1, 2, 4, 8, 16)


def main() -> None:
    """Run, print the results, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--runs", type=int, default=1, help="of each model")
    parser.add_argument("--profiles", type=Path, help="folder of profiles, which are kept")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models or MODELS:
            found[model] = _measured(model, options, options.profiles or Path(folder))
            print(model, json.dumps(found[model]), flush=True)
    print(json.dumps({"ranks": options.ranks, "models": found}))


def _measured(model: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    profile = folder / f"{model}-profile.json"
    # TensorFlow's allocator counts nothing without oneDNN, which some CPUs have by default.
    counts = {"TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")}
    steps = ["-m", "tensoropt", "profile", trained.__file__, "--output", profile, "--", model]
    run_job(steps, options.ranks, {**counts, "TENSOROPT_PROFILE": "none"})
    measured = {**counts, "TENSOROPT_PROFILE": str(profile)}
    program = "benchmarks.pipeline.trained"
    runs = [result_of(program, [model], options.ranks, measured) for _ in range(options.runs)]
    found: dict[str, Any] = {"runs": runs}
    if MODELS[model].memory_limit_bytes is not None:
        found["nothing_else_fits"] = not _fitting(model, options.ranks)
    return found


def _fitting(model: str, devices: int) -> list[int]:
    """The numbers of microbatches that fit without a pipeline if as little as possible is kept."""
    found = []
    for microbatches in _MICROBATCHES:
        tf.init(devices=devices)
        with tf.Graph().as_default():
            _, train = MODELS[model].step()
            try:
                tf.find_strategy(
                    "mini_time",
                    fetches=[train],
                    batch_size=MODELS[model].batch,
                    memory_limit_bytes=MODELS[model].memory_limit_bytes,
                    microbatches=microbatches,
                    save_memory=True,
                    pipeline=False,
                )
            except InfeasibleError as error:
                print(f"{model}, {microbatches} microbatches: {error}")
            else:
                found.append(microbatches)
    return found


if __name__ == "__main__":
    main()
