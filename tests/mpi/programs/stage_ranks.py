"""Every rank trains random pipelines, of which it emits its own stage, and compares with plain
TensorFlow; then what scripts see of one: fetches, values, checkpoints and failed checks.

mpirun -np 4 python stage_ranks.py COUNT FOLDER

COUNT, 2 or 4, is the number of random pipelines; half as many plans combine spaces.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from collectives import Group
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import mpi_stages
from tensoropt.frontend.job.job import Job, current
from tensoropt.plan import Plan
from tests.oracles.equality import Script, mlp, train_plain, worst_error
from tests.oracles.equality.combinations import drawn, error_of
from tests.oracles.equality.engine import Trained
from tests.oracles.equality.stage_scripts import skips, tied, towers
from tests.oracles.equality.stages import draw_pipeline, staged_executor, train_pipeline

v1 = tf.compat.v1
SIZES = ((2, 2), (1, 1, 1, 1), (1, 2, 1), (1, 3))
CLASSES = 4
COMBINATIONS = (3, 10)
"""Substitutions in copies of branches, and in copies of stages that recompute."""
ORDER = (2, 0, 3, 1)
"""The devices that the stages of these plans take."""


def main(count: int, folder: str) -> None:
    """Print what was found, as JSON: errors are the worst of all ranks."""
    tensoropt.init(allow_copies=True)
    job = current()
    worlds_of = functools.partial(mpi_stages, group=job.group)
    scripts = [mlp(tf.float64, 2, 8, (8, 16, 8), 0.25), tied(layers=2), skips(layers=3), towers()]
    truths = truths_of(scripts, job.group)
    errors = []
    for number in range(len(SIZES))[-count:]:
        which = (0, 3, 1, 2)[number]
        script, truth, random = scripts[which], truths[which], np.random.default_rng(number)
        microbatches = (4, 2, 1, 1)[which]
        pipeline = draw_pipeline(script, random, SIZES[number], worlds_of, microbatches)
        errors.append(worst_error(train_pipeline(script, pipeline, job.agreement), truth))
    script = checked()
    executors = [
        staged_executor(
            script,
            draw_pipeline(script, np.random.default_rng(seed), SIZES[seed], worlds_of),
            job.agreement,
        )
        for seed in (0, 1)
    ]
    found = {
        "combined": combined(COMBINATIONS[: count // 2], folder),
        "errors": errors,
        **seen(job, script, *executors, folder),
        **validated(),
    }
    said = job.group.allgather_object(found)
    if job.group.rank == 0:
        print(json.dumps(said))


def truths_of(scripts: Sequence[Script], group: Group) -> list[Trained]:
    """What plain TensorFlow trains; each rank trains one of as many scripts as there are ranks."""
    own = train_plain(scripts[group.rank])
    variables = {name: value.tolist() for name, value in own.variables.items()}
    everyone = group.allgather_object({"losses": own.losses.tolist(), "variables": variables})
    return [
        Trained(
            np.array(each["losses"]),
            {name: np.array(value) for name, value in each["variables"].items()},
        )
        for each in everyone
    ]


def combined(numbers: Sequence[int], folder: str) -> list[float]:
    """Plans that combine spaces, read from files: how far they are from plain TensorFlow."""
    errors = []
    for number in numbers:
        path = Path(folder) / f"plan{current().group.rank}.json"
        plan = drawn(number, devices=4).plan
        replace(plan, device_order=ORDER if plan.stages else ()).save(path)
        errors.append(error_of(number, Plan.load(path)))
    return errors


def validated() -> dict[str, object]:
    """Pipelines and data parallelism, measured before one is adopted; then it trains."""
    script = mlp(tf.float32, 2, 8, (8, 16, 8))
    with script.graph.as_default():
        plan = tensoropt.find_strategy(
            batch_size=8, pipeline=2, microbatches=2, validate=1, fetches=[script.train]
        )
        tensoropt.build_execution_graph(plan=plan)
        losses = [
            float(tensoropt.run([script.loss, script.train], named(values))[0])
            for values in script.feeds
        ]
    assert plan.validation is not None
    trials = plan.validation.trials
    return {
        "trials": [(trial.name, (trial.measured_seconds or 0) > 0) for trial in trials],
        "adopted": plan.validation.adopted,
        "trained": losses,
        "truth": train_plain(script).losses.tolist(),
    }


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}:0": value for name, value in values.items()}


def checked() -> Script:
    """A step that checks what the first layer reads and what the last does; its rate is fed."""
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, 4], name="images")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        rate = v1.placeholder(tf.float64, [], name="rate")
        values = tf.debugging.check_numerics(images, "images")
        for layer in range(3):
            weights = v1.get_variable(
                f"weights{layer}",
                [4, 4],
                tf.float64,
                v1.glorot_uniform_initializer(seed=layer),
                use_resource=True,
            )
            values = tf.tanh(tf.matmul(values, weights))
        known = v1.Assert(tf.reduce_all(labels < CLASSES), ["labels", labels])
        with tf.control_dependencies([known]):
            logits = tf.identity(values)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each, name="loss")
        tf.strings.as_string(loss, precision=9, name="text")
        train = v1.train.GradientDescentOptimizer(rate).minimize(loss)
    random = np.random.default_rng(0)
    feeds = {
        "images": random.normal(size=(8, 4)),
        "labels": random.integers(CLASSES, size=8).astype(np.int32),
        "rate": np.asarray(0.5),
    }
    return Script(graph, train.name, loss.name, (feeds, feeds))


def seen(
    job: Job, script: Script, one: Executor, other: Executor, folder: str
) -> dict[str, object]:
    """What a script sees of a pipeline, beside plain TensorFlow; another goes on from it."""
    truth = train_plain(script)
    feeds = script.feeds[0]
    # The first rank's value holds for a feed that is no batch.
    fed = {**feeds, "rate": np.asarray(0.5 + job.group.ranks[job.group.rank])}
    first = one.run([script.loss, "text:0"], [script.train], fed)
    failures = []
    nothing = feeds["images"].copy()
    nothing[:, -1] = np.inf
    for broken in ({"labels": feeds["labels"] + CLASSES}, {"images": nothing}):
        try:
            one.run([script.loss], [script.train], {**fed, **broken})
        except tf.errors.InvalidArgumentError as error:
            failures.append(error.message)
    one.variables.check_replicas()
    values = one.variables.values()
    tensors = [
        SavedTensor(f"saved/{name}", name, x.dtype.name, x.shape, x.shape, (0,) * x.ndim)
        for name, x in values.items()
    ]
    one.save(tensors, {}, f"{folder}/saved")
    read = tf.train.load_checkpoint(f"{folder}/saved")
    other.variables.restore(tensors, f"{folder}/saved")
    second = other.run([script.loss], [script.train], fed)
    variables = other.run(script.variables, [], {})
    with script.graph.as_default():  # as many names as on the other ranks
        late = v1.py_func(lambda: 1, [], tf.int64)
    others = other.variables.values()
    other.variables.assign({name: np.zeros_like(x) for name, x in others.items()})
    zeros = other.run([*script.variables, late.name], [], {})
    return {
        "losses": [float(first[script.loss]), float(second[script.loss])],
        "right_losses": truth.losses.tolist(),
        "text": first["text:0"].decode(),
        "failures": failures,
        "variables": max(
            float(np.max(np.abs(variables[n] - x))) for n, x in truth.variables.items()
        ),
        "saved": max(
            float(np.max(np.abs(read.get_tensor(f"saved/{n}") - x))) for n, x in values.items()
        ),
        "zeros": max(float(np.max(np.abs(zeros[n]))) for n in script.variables),
        "values": sorted(others),
    }


main(int(sys.argv[1]), sys.argv[2])
