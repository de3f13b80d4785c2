"""Trains a model by a pipeline, and writes the predicted and the measured time of its steps.

    mpirun -np 4 python -m benchmarks.pipeline.trained MODEL RESULT.json

Each model is one of `MODELS`, with its memory limit. The first rank writes the result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import tensoropt as tf
from examples.models import Model, lstm_language_model, transformer
from examples.models.parts import dense
from tensoropt.frontend.job.job import current

__all__ = ["MODELS", "Trained", "main"]

_STEPS, _WARM_UP = 45, 5  # the first steps are measured, too
_INTEGERS = 10
"""Fed classes and tokens are below this number."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model that is trained by a pipeline.

    Attributes:
        build: makes the forward graph in the default graph.
        batch: number of examples of a step.
        memory_limit_bytes: memory limit of a device; None for the machine's.
        pipeline: the option of `tensoropt.find_strategy`.
    """

    build: Callable[[], Model]
    batch: int
    memory_limit_bytes: int | None = None
    pipeline: int | None = None

    def step(self) -> tuple[Model, Any]:
        """Build the model and its training operator (momentum) in the default graph."""
        model = self.build()
        return model, tf.train.MomentumOptimizer(0.01, 0.9).minimize(model.loss)


def _perceptron(layers: int, width: int) -> Model:
    images = tf.placeholder(tf.float32, [None, width], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    values = images
    for layer in range(layers):
        values = dense(tf.nn.relu(values) if layer else values, width, f"layer{layer}")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values)
    return Model({"images": images, "labels": labels}, tf.reduce_mean(losses), values)


MODELS: Mapping[str, Trained] = {
    # A prime width cannot be divided among devices, so only the batch can be split.
    "perceptron": Trained(lambda: _perceptron(12, 509), 512, 20 * 2**20),
    "lstm": Trained(lambda: lstm_language_model(512, 2, 6, 2000), 64, pipeline=2),
    "transformer": Trained(lambda: transformer(2, 256, 4, 1024, 32, 32, 2000), 32, pipeline=2),
}


def main(name: str, result: Path | None = None) -> None:
    """Plan, train and compare; every rank calls."""
    trained = MODELS[name]
    tf.init()
    model, train = trained.step()
    plan = tf.find_strategy(
        "mini_time",
        batch_size=trained.batch,
        memory_limit_bytes=trained.memory_limit_bytes,
        pipeline=trained.pipeline,
    )
    tf.build_execution_graph(engine="tensorflow", plan=plan)
    random = np.random.default_rng(0)
    feeds = {}
    for given in model.placeholders.values():
        shape = [trained.batch, *given.shape.as_list()[1:]]
        drawn = random.integers(_INTEGERS, size=shape) if given.dtype.is_integer else None
        feeds[given] = random.normal(size=shape) if drawn is None else drawn
    for number in range(_STEPS):
        if number == _WARM_UP:
            begun = process_time()
        tf.run(train, feeds)
    group = current().group
    busy = group.allgather_object((process_time() - begun) * 1e3 / (_STEPS - _WARM_UP))
    step, _, peak = tf.compare().quantities
    peaks = group.allgather_object([peak.predicted, peak.measured])
    if group.rank == 0 and result is not None:
        found = {
            "stages": [stage.mesh.size for stage in plan.stages],
            "microbatches": plan.microbatches,
            "schedule": plan.schedule,
            "busy_ms": [each.busy_nanoseconds(plan.microbatches) / 1e6 for each in plan.stages],
            "processor_ms_of_ranks": busy,
            "step_ms": {"predicted": step.predicted, "measured": step.measured},
            "peak_mib": {
                "predicted": max(predicted or 0.0 for predicted, _ in peaks),
                "measured": max(measured or 0.0 for _, measured in peaks),
                "of_ranks": peaks,
            },
        }
        result.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
