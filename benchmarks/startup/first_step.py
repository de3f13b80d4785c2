"""Trains one model until the end of its first step; each rank writes the time.

    python -m benchmarks.startup.first_step MODEL FOLDER --started SECONDS [--plain]
    mpirun -np 2 python -m benchmarks.startup.first_step MODEL FOLDER --started SECONDS

``fit`` gets an epoch of a thousand steps and is stopped after the first one. CPU seconds are the
user and system seconds of the process and its children. Wall seconds, and those to the plan, count
from ``--started``, a time of the system's clock. With ``--profile FILE`` the first rank runs under
Python's profiler.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import resource
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.startup.models import MODELS

__all__: list[str] = []

_STEPS = 1000


def main() -> None:
    """Build, compile, fit, and write the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--started", type=float, default=time.time())
    parser.add_argument("--plain", action="store_true", help="without TensorOpt")
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    rank = int(os.environ.get("PMI_RANK", "0"))
    profile = cProfile.Profile() if options.profile and not rank else None
    if profile is not None:
        profile.enable()
    figures = _first_step(options.model, options.plain, options.started)
    if profile is not None:
        profile.disable()
        profile.dump_stats(options.profile)
    (options.folder / f"rank-{rank}.json").write_text(json.dumps(figures))


def _first_step(name: str, is_plain: bool, started: float) -> dict[str, float]:
    if not is_plain:
        import tensoropt  # first, as scripts do

    import keras
    import tensorflow as tf

    figures = {"plan_seconds": 0.0}
    keras.utils.set_random_seed(1)
    start = MODELS[name]()
    model = start.model
    if not is_plain:
        model = tensoropt.parallelize(model)
        _note_plan(figures, started)
    model.compile("adam", start.loss)

    class FirstStep(keras.callbacks.Callback):  # type: ignore[misc]
        """Notes the times after the first step and ends training."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch
            figures["cpu_seconds"] = _cpu_seconds()
            figures["wall_seconds"] = time.time() - started
            figures["loss"] = float(logs["loss"])
            self.model.stop_training = True

    batches = tf.data.Dataset.from_tensors((start.inputs, start.targets)).repeat()
    model.fit(batches, steps_per_epoch=_STEPS, verbose=0, callbacks=[FirstStep()])
    return figures


def _note_plan(figures: dict[str, float], started: float) -> None:
    """Let the first plan of this process note its time."""
    steps: Any = import_module("tensoropt.frontend.steps.parallel_step")
    find = steps.find_strategy

    def noted(*arguments: Any, **options: Any) -> Any:
        plan = find(*arguments, **options)
        figures["plan_seconds"] = figures["plan_seconds"] or time.time() - started
        return plan

    steps.find_strategy = noted


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
