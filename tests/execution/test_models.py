"""Random strategies of the four models against plain TensorFlow, all ranks in one process.

``python -m tests.oracles.equality`` is the same with many more strategies, and under mpirun.
"""

from __future__ import annotations

import argparse
import functools

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    KINDS,
    MODELS,
    Drawn,
    Script,
    Trained,
    choices_of,
    draw,
    model_script,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.__main__ import equality_tasks, report
from tests.proofs import proof

tensoropt.enable_graph_mode()

v1 = tf.compat.v1

BARS = {"float32": 1e-4, "float64": 1e-10}
# Emission takes most of the time and grows with the devices; the benchmark has more of them.
TYPES = ("float64", "float32")
DEVICES = {"vgg16": (4, 2), "wide_resnet": (2, 2), "lstm": (4, 2), "transformer": (4, 2)}
STEPS, SEED = 2, 5
# Both types and both meshes; layers of wide residual networks are in other tests, too.
IN_SUITE = {"vgg16": 0, "lstm": 1, "transformer": 1}
ALL = pytest.mark.parametrize(
    "model", [*IN_SUITE, *(proof(model) for model in MODELS if model not in IN_SUITE)]
)
SPLITS = {
    "vgg16": {"spatial", "halo", "class"},
    "wide_resnet": {"spatial", "halo", "class"},
    "lstm": {"class", "vocabulary"},
    "transformer": {"class", "head", "vocabulary"},
}


@functools.cache
def script(model: str, dtype: str) -> Script:
    return model_script(model, tf.as_dtype(dtype), STEPS)


@functools.cache
def truth(model: str, dtype: str) -> Trained:
    return train_plain(script(model, dtype))


@functools.cache
def drawn(model: str, number: int) -> Drawn:
    own = script(model, TYPES[number])
    mesh = Mesh.of(DEVICES[model][number])
    choices = choices_of(own, mesh, frozenset(own.feeds[0]))
    return draw(own.imported(), choices, mesh, np.random.default_rng([SEED, number]))


@pytest.mark.parametrize(
    ("model", "number"),
    [
        *IN_SUITE.items(),
        *(
            proof(model, number)
            for model in MODELS
            for number in range(len(TYPES))
            if IN_SUITE.get(model) != number
        ),
    ],
)
def test_training_equals_one_device(model: str, number: int) -> None:
    dtype = TYPES[number]
    own = script(model, dtype)
    strategy = drawn(model, number)
    found = train_parallel(
        own,
        Mesh.of(DEVICES[model][number]),
        strategy.numbers,
        random_prices(number),
        frozenset(own.feeds[0]),
    )
    assert worst_error(found, truth(model, dtype)) <= BARS[dtype], sorted(strategy.kinds)


@ALL
def test_every_kind_of_split_occurs(model: str) -> None:
    found = set().union(*(drawn(model, number).kinds for number in range(len(TYPES))))
    assert {"batch", "reduction", "redundant", *SPLITS[model]} <= found <= set(KINDS)


@ALL
def test_training_changes_every_variable(model: str) -> None:
    dtype = TYPES[IN_SUITE.get(model, 1)]
    own = script(model, dtype)
    with own.graph.as_default(), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        initial = dict(zip(own.variables, session.run(own.variables), strict=True))
    trained = truth(model, dtype).variables
    for name in own.variables:
        assert np.any(initial[name] != trained[name]), name


def test_a_graph_reads_the_same_in_every_process() -> None:
    """TensorFlow lists an operator's many control inputs in the order of their addresses."""
    graph = tf.Graph()
    with graph.as_default():
        steps = [v1.no_op(name=f"step{number:03}") for number in range(200)]
        v1.group(*reversed(steps), name="all")
    names = [operator.name for operator in import_graph(graph, ["all"])]
    assert names == [step.name for step in steps] + ["all"]


def test_the_benchmark_divides_its_strategies_over_the_devices() -> None:
    options = argparse.Namespace(
        models=["lstm"], devices=[2, 4, 8], strategies=50, mpi_strategies=3, seed=7, kinds=None
    )
    planned = equality_tasks(options)
    single = [task for task in planned if task.world == "single-process"]
    numbers = [(task.devices, number) for task in single for number in task.numbers]
    assert sorted(number for _, number in numbers) == list(range(50))
    assert {devices for devices, _ in numbers} == {2, 4, 8}
    assert [(t.devices, t.numbers, t.seed) for t in planned if t.world == "mpi"] == [
        (4, (0, 1, 2), 7)
    ]


def test_the_benchmark_reports_the_worst_and_what_failed() -> None:
    line = {"model": "lstm", "devices": 2, "reason": "", "kinds": ["batch"]}
    lines = [
        {**line, "world": "single-process", "number": 0, "type": "float32", "error": 1e-5},
        {**line, "world": "single-process", "number": 0, "type": "float64", "error": 1e-9},
        {**line, "world": "single-process", "number": 1, "type": "float32", "error": None},
        {**line, "world": "mpi", "number": 0, "type": "float32", "error": 2e-5, "kinds": []},
    ]
    result = report(["lstm"], lines)
    entry = result["models"]["lstm"]
    assert (entry["strategies"], entry["mpi_strategies"], entry["drawn"]) == (2, 1, 4)
    assert (entry["worst_float32"], entry["worst_float64"]) == (2e-5, 1e-9)
    assert entry["kinds"]["batch"] == 3
    assert result["failures"] == 2  # one over its bar, one that ended in an error
