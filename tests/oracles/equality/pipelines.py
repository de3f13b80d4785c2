"""Train one model by several random pipelines and print how far each is from one device.

    python -m tests.oracles.equality.pipelines MODEL DEVICES SEED '' NUMBER...

Under ``mpirun -np DEVICES`` each rank is a process that emits its own stage, otherwise one process
runs all ranks. A pipeline has two to four stages, 1 to 8 microbatches, and a random split in each
stage; its stages take the ranks in a random order, as those of a plan with ``device_order`` do. The
program prints a line of JSON for each pipeline and type.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.stages.stage_ranks import Pipeline, mpi_stages, stages_in_one_process
from tensoropt.frontend.job.job import current
from tests.oracles.equality.engine import Script, Trained
from tests.oracles.equality.scripts import SCRIPTS, mlp
from tests.oracles.equality.stage_scripts import skips, tied, towers
from tests.oracles.equality.stages import batch_of, draw_pipeline, train_pipeline
from tests.oracles.equality.strategies import compare

__all__ = ["PIPELINE_MODELS", "main"]

STEPS = 5
MOST_STAGES, MOST_MICROBATCHES = 4, 8

PIPELINE_MODELS: dict[str, Callable[[tf.DType], Script]] = {
    "mlp_dropout": functools.partial(mlp, steps=STEPS, dropout=0.25),
    "lstm": SCRIPTS["lstm"],
    "transformer": SCRIPTS["transformer"],  # its embeddings are tied
    "skips": functools.partial(skips, steps=STEPS),
    "tied": functools.partial(tied, steps=STEPS),
    "towers": functools.partial(towers, steps=STEPS),
}
"""The models of ``--pipelines``, as functions of the dtype; all train five steps."""


def main(model: str, devices: int, seed: int, numbers: list[int]) -> None:
    """Compare pipelines, see `tests.oracles.equality.strategies.compare`."""
    tensoropt.init(allow_copies=True)
    job = current()

    def draw(
        script: Script, _: int, random: np.random.Generator
    ) -> tuple[Callable[[], Trained], Sequence[str]]:
        sizes = _sizes(devices, random)
        microbatches = _microbatches(script, random)
        worlds_of, agreement = stages_in_one_process, job.agreement
        if job.is_mpi:
            (of_order,) = random.spawn(1)  # the other draws stay those of one process
            group = job.group.subgroup(of_order.permutation(devices).tolist())
            worlds_of = functools.partial(mpi_stages, group=group)
            agreement = agreement.among(group)
        pipeline = draw_pipeline(script, random, sizes, worlds_of, microbatches)
        return functools.partial(train_pipeline, script, pipeline, agreement), _kinds(pipeline)

    compare(model, devices, seed, numbers, PIPELINE_MODELS[model], draw)


def _sizes(devices: int, random: np.random.Generator) -> list[int]:
    """The number of devices of each stage."""
    stages = int(random.integers(2, min(MOST_STAGES, devices) + 1))
    cuts = np.sort(random.choice(np.arange(1, devices), stages - 1, replace=False))
    return [int(size) for size in np.diff([0, *cuts, devices])]


def _microbatches(script: Script, random: np.random.Generator) -> int:
    batch = script.feeds[0][min(batch_of(script))].shape[0]
    return int(random.choice([n for n in range(1, MOST_MICROBATCHES + 1) if batch % n == 0]))


def _kinds(pipeline: Pipeline) -> list[str]:
    """The sizes of a pipeline's stages, its microbatches and its schedule."""
    sizes = "+".join(str(each.world.mesh.size) for each in pipeline.stages)
    return [sizes, f"{pipeline.microbatches} microbatches", pipeline.schedule]


if __name__ == "__main__":
    _model, _devices, _seed, _, *_numbers = sys.argv[1:]
    main(_model, int(_devices), int(_seed), [int(number) for number in _numbers])
