"""Unity's Figure 2 in exact numbers: the communication of a perceptron of two layers on two
devices.

    mpirun -np 2 python -m reproduction.unity.figure2

Batch 64, 784 inputs, 512 hidden units, 10 outputs. The program counts the elements that devices
send: 2 n for an all-reduce of n elements on two devices, of which each sends n. In the figure, a
product is split by examples or by summands (the second product of its joint plan by output
channels). A product that is fused with its activation cannot be split by summands, which leaves
data parallelism. The search finds the least communication of each space. Under mpirun both plans
run, and their collectives are counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import tensoropt as tf
from reproduction.unity.elements import MESH, SENT, elements_model, least_elements
from reproduction.unity.fused import fuse_activations
from tensoropt.elastic.launcher import mpirun
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph
from tensoropt.parallel.configuration import Configuration
from tests.oracles.equality.engine import executor_of

__all__ = ["figure_2"]

BATCH, INPUTS, HIDDEN, OUTPUTS = 64, 784, 512, 10
_EXAMPLES, _CHANNELS, _SUMMANDS = 0, 1, 2  # numbers of a product's indices
_RECORD = re.compile(r": float32\[(?P<shape>[0-9, ]*)\] .*?(?P<kind>" + "|".join(SENT) + r")\b")


@dataclass(frozen=True, slots=True, eq=False)
class _Script:
    graph: tf.Graph
    train: str
    loss: str
    step: Graph


def _script() -> _Script:
    """Two layers without biases. The gradient of their outputs is fed, because the figure counts
    no elements of a loss."""
    script = tf.Graph()
    with script.as_default():
        given = tf.placeholder(tf.float32, [BATCH, INPUTS], name="given")
        weight = tf.placeholder(tf.float32, [BATCH, OUTPUTS], name="gradient")
        first = tf.get_variable("first", [INPUTS, HIDDEN])
        second = tf.get_variable("second", [HIDDEN, OUTPUTS])
        scores = tf.matmul(tf.nn.relu(tf.matmul(given, first)), second)
        loss = tf.reduce_sum(scores * weight)
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        step = import_graph(script, [train.name], {})
    return _Script(script, train.name, loss.name, step)


def figure_2() -> dict[str, Any]:
    """The elements of each plan, predicted and counted under mpirun."""
    script = _script()
    shares = frozenset({_EXAMPLES, _SUMMANDS})
    alone = fuse_activations(script.step, (script.train,))
    every = frozenset({_EXAMPLES, _CHANNELS, _SUMMANDS})
    found = {
        "one_after_the_other": least_elements(alone, {0: shares, 1: shares})[0],
        "figure_2b": least_elements(script.step, _FIGURE_2B)[0],
        "jointly": least_elements(script.step, {0: shares, 1: shares})[0],
        "jointly_all_dimensions": least_elements(script.step, {0: every, 1: every})[0],
    }
    command = [mpirun(), "-np", "2", sys.executable, "-m", "reproduction.unity.figure2"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    counted = json.loads(ran.stdout.strip().splitlines()[-1])
    return {**found, "counted_under_mpirun": counted}


_FIGURE_2B = {0: frozenset({_SUMMANDS}), 1: frozenset({_CHANNELS})}
_DATA = {0: frozenset({_EXAMPLES}), 1: frozenset({_EXAMPLES})}


def main() -> None:
    """Run the plans on two ranks and print what their collectives send."""
    tf.init(allow_copies=True)
    job, script = current(), _script()
    shares = frozenset({_EXAMPLES, _SUMMANDS})
    plans = {"data_parallel": _DATA, "figure_2b": _FIGURE_2B, "jointly": {0: shares, 1: shares}}
    counted = {}
    for name, allowed in plans.items():
        _, configurations = least_elements(script.step, allowed)
        counted[name] = _sent(script, configurations)
    if job.group.rank == 0:
        sys.stdout.write(json.dumps(counted) + "\n")


def _sent(script: _Script, configurations: Mapping[str, Configuration]) -> int:
    """Elements that both ranks send in a step; scalars (the loss) do not count."""
    job = current()
    world = MPIWorld(MESH, job.group, job.transport)
    prices = elements_model().collective_nanoseconds
    executor = executor_of(
        script.graph, MESH, configurations, prices, world=world, agreement=job.agreement
    )
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in {"given": (BATCH, INPUTS), "gradient": (BATCH, OUTPUTS)}.items()
    }
    executor.run([], [script.train], feeds)
    shapes = {name: value.shape for name, value in feeds.items()}
    program = executor.program([], [script.train], shapes)
    sent = 0.0
    for record in program.collectives:
        found = _RECORD.search(record)
        extents = [int(extent) for extent in found["shape"].split(",") if extent] if found else []
        if found is not None and extents:
            sent += SENT[found["kind"]] * prod(extents)
    executor.close()
    return round(sent)


if __name__ == "__main__":
    main()
