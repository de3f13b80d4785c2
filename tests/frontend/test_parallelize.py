"""Steps of eager TensorFlow, in processes of their own: graph mode is on in this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensoropt
from tensoropt.errors import StateError
from tests.proofs import proof

PROGRAM = Path(__file__).parent / "steps_program.py"
TRACES = Path(__file__).parent / "traces_program.py"
# Times that a step is traced: with the first shapes, with unknown ones; where these fail, for each
# shape.
TRACED = {
    "signature": 1,
    "ragged": 2,
    "sparse": 2,
    "lengths": 3,
    "asks_for_rows": 3,
    "contrasts": 4,
}


@pytest.mark.parametrize(
    ("devices", "left_out"),
    [("2", ["recurrent", "labels in time"]), proof("2", []), proof("4", [])],
)
def test_steps_of_keras_models_equal_plain_tensorflow_under_random_strategies(
    devices: str, left_out: list[str], python: Callable[..., Any], tmp_path: Path
) -> None:
    finished = python(PROGRAM, devices, tmp_path, *left_out)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert len(found["errors"]) == 10 - len(left_out)
    assert all(error < 1e-5 for error in found["errors"].values()), found["errors"]
    begins = {
        "model": "OptionError: a step is a function that computes gradients by a tf.GradientTape",
        "shapes": "OptionError: shapes follows from the call",
        "name": "OptionError: an option of parallelize is one of",
        "value": "OptionError: microbatches is a whole number from 1",
        "first": "GraphError: the first value of a variable that a step creates depends on const",
        "plan": "OptionError: a plan says how a step runs. Got plan=... with epsilon",
        "profiling": "OptionError: a step runs by a plan. Got option='profiling'",
        "loop": "GraphError: a step knows the shape of each tf.TensorArray that a loop fills",
        "changes": "GraphError: a loop over tensors in a step changes no variable",
        "iterator": "GraphError: a step captures variables, tensors, and tables",
        "creates": "GraphError: a step creates its variables when it runs first",
        "graph": "StateError: TensorOpt reads a script's graph, so graph mode is on before",
    }
    assert found["mistakes"].keys() == begins.keys()
    for name, begin in begins.items():
        assert found["mistakes"][name].startswith(begin), found["mistakes"][name]


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        ("2", ["asks_for_rows", "ragged", "epoch"]),
        *(proof(devices, [*TRACED, "epoch", "models"]) for devices in ("2", "4")),
    ],
)
def test_static_shapes_composite_tensors_and_epochs_equal_plain_tensorflow(
    devices: str, names: list[str], python: Callable[..., Any]
) -> None:
    finished = python(TRACES, devices, *names)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert set(found["errors"]) == set(names)
    assert all(error < 1e-5 for error in found["errors"].values()), found["errors"]
    for name in set(names) & set(TRACED):
        assert found["traces"][name] == TRACED[name], name
    assert "step = tensoropt.parallelize(train_step)" in found["mistakes"]["loop"]
    for name in ("condition", "condition_in_loop"):
        assert "compute the loss with the condition inside the tape" in found["mistakes"][name]
    assert found["objects"]["graphs"] <= 5  # some loops' bodies, and the function itself
    assert found["objects"]["error"] < 1e-5


def test_in_graph_mode_there_are_no_eager_steps() -> None:
    with pytest.raises(StateError, match="Got parallelize in graph mode"):
        tensoropt.parallelize(lambda: None)


def test_first_values_are_freed_in_the_script_as_the_ranks_get_their_shards(
    python: Callable[..., Any],
) -> None:
    program = """
import tensorflow as tf, tensoropt
from tensoropt.frontend.steps import variable_values
tensoropt.init(devices=2)
variable_values._GROUP_BYTES = 1
weights = [tf.Variable(tf.eye(8) * (n + 1.0)) for n in range(3)]
def step(x, weights=weights):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(x @ weights[0] @ weights[1] @ weights[2])
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(gradient)
    return loss
def size(variable):
    held = variable.__dict__
    handle = held["_tensoropt_handle" if "_tensoropt_handle" in held else "_handle"]
    return tf.size(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)).numpy()
whole = []
parallel = tensoropt.parallelize(step, pipeline=False)
passes = parallel._values._run
def counted(*args, **kwargs):
    whole.append([size(variable) for variable in weights].count(64))
    return passes(*args, **kwargs)
parallel._values._run = counted
copies = [tf.Variable(weight) for weight in weights]
x = tf.random.stateless_uniform([4, 8], [1, 2])
losses = [(parallel(x), step(x, copies)) for _ in range(2)]
assert whole == [3, 2, 1], whole
for pair in [*losses, *zip(weights, copies)]:
    tf.debugging.assert_near(*pair)
# A variable whose first value comes later, read by one step and then assigned by another.
target = tf.Variable(tf.zeros([8, 8]))
def follow(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights[0] - x @ target))
    weights[0].assign_sub(tape.gradient(loss, weights[0]))
    return loss
follow = tensoropt.parallelize(follow, pipeline=False)
copy = tensoropt.parallelize(lambda: target.assign(weights[0]))
variable_values.defer(target, lambda: tf.fill([8, 8], 2.0))
follow(x), copy()
variable_values.bring_up_to_date([target])
tf.debugging.assert_equal(target, weights[0])
"""
    finished = python("-c", program)
    assert finished.returncode == 0, finished.stderr


def test_the_plan_of_a_step_is_measured_with_the_values_of_its_variables(
    python: Callable[..., Any],
) -> None:
    """Candidates read variables, and change none of the script's."""
    program = """
import tensorflow as tf, tensoropt
tensoropt.init(devices=2)
weights = [tf.Variable(tf.eye(64) * (n + 1.0)) for n in range(2)]
def step(x, weights=weights):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(x @ weights[0] @ weights[1])
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(gradient)
    return loss
copies = [tf.Variable(weight) for weight in weights]
parallel = tensoropt.parallelize(step, validate=2)
for rows in (32, 16):
    x = tf.random.stateless_uniform([rows, 64], [1, 2])
    tf.debugging.assert_near(parallel(x), step(x, copies))
    trials = parallel.plan.validation.trials
    assert len(trials) > 1, trials
    assert all(trial.measured_seconds for trial in trials), trials
for pair in zip(weights, copies):
    tf.debugging.assert_near(*pair)
"""
    finished = python("-c", program)
    assert finished.returncode == 0, finished.stderr
