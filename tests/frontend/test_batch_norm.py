"""``find_strategy(batch_norm="local")``: what a plan says of it, and that runs follow the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tensorflow_itself

import tensoropt as tf
from tensoropt import errors

Fails = Callable[..., None]
IMAGES = np.random.default_rng(0).normal(size=(8, 2, 2, 3)).astype(np.float32)
IMAGES[4:] += 5


def normalised(fused: bool = True) -> Any:
    """A step that trains a scale, and follows the mean of the batch; its loss."""
    images = tf.placeholder(tf.float32, [None, 2, 2, 3], name="images")
    scale = tf.get_variable("scale", [3], initializer=tf.ones_initializer())
    offset = tf.zeros([3])
    if fused:
        values, mean, _ = tf.nn.fused_batch_norm(images, scale, offset, epsilon=1e-3)
    else:
        mean, variance = tf.nn.moments(images, [0, 1, 2])
        values = tf.nn.batch_normalization(images, mean, variance, offset, scale, 1e-3)
    moving = tf.get_variable("moving", [3], initializer=tf.zeros_initializer(), trainable=False)
    loss = tf.reduce_mean(tf.nn.relu(values), name="loss")
    with tf.control_dependencies([tf.assign_sub(moving, (moving - mean) * 0.1)]):
        tf.train.GradientDescentOptimizer(1.0).minimize(loss, name="train")
    return loss


def by_numpy(parts: int) -> tuple[float, Any]:
    """The loss, each of so many parts normalised by itself, and the moving mean."""
    losses, means = [], []
    for part in np.split(IMAGES.astype(np.float64), parts):
        mean, variance = part.mean((0, 1, 2)), part.var((0, 1, 2))
        losses.append(np.maximum((part - mean) / np.sqrt(variance + 1e-3), 0).mean())
        means.append(mean)
    return float(np.mean(losses)), 0.1 * np.mean(means, 0)


@pytest.mark.parametrize("batch_norm", ["global", "local"])
def test_a_plan_has_whose_statistics_are_taken(batch_norm: Any, tmp_path: Path) -> None:
    tf.init(devices=2)
    loss = normalised()
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel", batch_norm=batch_norm)
    plan.save(tmp_path / "plan.json")
    plan = tf.Plan.load(tmp_path / "plan.json")
    is_local = batch_norm == "local"
    assert plan.batch_norm == batch_norm
    assert (", batch_norm=local" in str(plan)) == is_local
    note = (
        "batch_norm='local': 1 of 1 batch normalisations take the statistics of a device's shard, "
        "1/2 of the batch's values; losses depend on the number of devices and on the plan"
    )
    assert (note in plan.notes) == is_local
    tf.build_execution_graph(plan=plan)
    found, _ = tf.run([loss, "train"], {"images:0": IMAGES})
    expected, moving = by_numpy(2 if is_local else 1)
    assert found == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(tf.run("moving:0"), moving, rtol=1e-5)


def test_local_statistics_take_less_network_time() -> None:
    tf.init(devices=4, cluster="2x8-v100")
    normalised()
    whole, own = (
        tf.find_strategy(batch_size=8, algorithm="data_parallel", batch_norm=each)
        for each in ("global", "local")
    )
    assert own.predicted_network_seconds < whole.predicted_network_seconds
    assert own.graph_digest == whole.graph_digest


@pytest.mark.parametrize(
    ("fused", "devices", "why"),
    [(False, 2, "no FusedBatchNorm in training"), (True, 1, "no batch normalisation is split")],
)
def test_a_note_says_where_nothing_changes(fused: bool, devices: int, why: str) -> None:
    tf.init(devices=devices)
    normalised(fused)
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel", batch_norm="local")
    (note,) = (note for note in plan.notes if "batch_norm" in note)
    assert note.startswith("batch_norm='local' changes nothing: ")
    assert why in note


def test_unknown_statistics(fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.OptionError,
        "a batch_norm is one of global, local",
        "'locall'",
        "Did you mean 'local'?",
        lambda: tf.find_strategy(batch_size=8, batch_norm="locall"),  # type: ignore[call-overload]
    )


def test_a_gradient_that_the_script_makes_itself(fails: Fails) -> None:
    tf.init(devices=2)
    images = tf.placeholder(tf.float32, [8, 2, 2, 3], name="images")
    raw, one = tensorflow_itself.raw_ops, tf.ones([3])
    made = raw.FusedBatchNormV3(x=images, scale=one, offset=one, mean=[], variance=[])
    gradient = raw.FusedBatchNormGradV3(
        y_backprop=made.y,
        x=images,
        scale=one,
        reserve_space_1=made.reserve_space_1,
        reserve_space_2=made.reserve_space_2,
        reserve_space_3=made.reserve_space_3,
    )
    fails(
        errors.GraphError,
        "gradients of batch normalisation are computed by tf.gradients or an optimizer",
        "'FusedBatchNormGradV3', a FusedBatchNormGradV3 that reads 'FusedBatchNormV3:3'",
        "leave batch_norm at 'global'",
        lambda: tf.find_strategy(fetches=[gradient.x_backprop], batch_norm="local"),
    )
