"""A model whose weights fit only split: trained, evaluated, saved, and trained on by other ranks.

``mpirun -np N python split_only_ranks.py FOLDER begin|go_on EXAMPLES`` writes a file of numbers,
also without ``mpirun``, where ``TENSOROPT_DEVICES`` is N. Afterwards
``python split_only_ranks.py FOLDER plain EXAMPLES`` compares them with Keras's own, and serves the
SavedModel.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning import forward_plans

WIDTH = 512
LIMIT = 7 * WIDTH * WIDTH * 4  # bytes: two kernels with momentum and gradients take six, and more
RANDOM = np.random.default_rng(0)
X = RANDOM.random((int(sys.argv[3]), WIDTH), np.float32)


def new_model() -> Any:
    """A model of two large kernels."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(WIDTH, "tanh"), keras.layers.Dense(WIDTH, "tanh")]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), "mse", metrics=["mae"])
    return model


def numbers(model: Any) -> dict[str, Any]:
    """Evaluate, predict and train a model."""
    first = [model.evaluate(X, X[:, :1], 8, 0), model.predict(X, 8, 0).tolist()]
    given = {"shuffle": False, "validation_data": (X, X[:, :1])}
    history = model.fit(X, X[:, :1], 8, 1, 0, **given).history
    last = [model.evaluate(X, X[:, :1], 8, 0), model.predict(X, 8, 0).tolist()]
    return {"first": first, "history": [history[name] for name in sorted(history)], "last": last}


def difference(found: Any, truth: Any) -> float:
    """The largest relative difference between numbers in nested lists."""
    if isinstance(truth, list):
        return max(difference(*pair) for pair in zip(found, truth, strict=True))
    return float(abs(found - truth) / max(1.0, abs(truth)))


def parallel(folder: Path, phase: str) -> None:
    """Train on all ranks, and write the numbers."""
    forward_plans._LEAST_WORK = 0
    is_first = phase == "begin"
    model = new_model() if is_first else keras.saving.load_model(folder / "model.keras")
    alone = {"pipeline": False, "microbatches": 1, "rewrite": False}
    predict_on = "all" if is_first else "first"
    tensoropt.parallelize(model, predict_on, memory_limit_bytes=LIMIT, **alone)
    found = numbers(model)
    assert bool(found["last"][1]) == (is_first or tensoropt.rank() == 0)
    executor = current().executor
    assert executor is not None
    planned = executor.planned()
    kernels = [name for name in planned if name.endswith("kernel") and name in model_kernels(model)]
    assert any(any(planned[name].splits) for name in kernels), "the limit asks for split kernels"
    assert current().plan is model.train_function.plan, "evaluations have a graph of their own"
    model.save(folder / f"{'model' if is_first else 'end'}.keras")
    if is_first:
        model.export(str(folder / "served"), verbose=False)
    if tensoropt.rank() == 0:
        (folder / f"{phase}.json").write_text(json.dumps(found))


def model_kernels(model: Any) -> set[str]:
    """The names of the kernels, as the step's graph has them."""
    return {weight.path for weight in model.trainable_weights if weight.path.endswith("kernel")}


def plain(folder: Path) -> None:
    """Compare the numbers with Keras's own."""
    model = new_model()
    errors: dict[str, float] = {}
    for phase in ("begin", "go_on"):
        truth = numbers(model)
        found = json.loads((folder / f"{phase}.json").read_text())
        errors |= {f"{phase} {name}": difference(found[name], truth[name]) for name in truth}
        if phase == "begin":
            served = tf.saved_model.load(str(folder / "served"))
            errors["served"] = float(np.abs(served.serve(X).numpy() - truth["last"][1]).max())
    ends = keras.saving.load_model(folder / "end.keras").get_weights()
    pairs = zip(ends, model.get_weights(), strict=True)
    errors["weights"] = max(float(np.abs(one - other).max()) for one, other in pairs)
    print(json.dumps(errors))


if __name__ == "__main__":
    if sys.argv[2] == "plain":
        plain(Path(sys.argv[1]))
    else:
        parallel(Path(sys.argv[1]), sys.argv[2])
