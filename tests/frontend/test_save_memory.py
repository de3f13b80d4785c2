"""``find_strategy(save_memory=True)``: plans that keep less for the backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf

LAYERS = 3


def gated() -> tuple[Any, Any, Any]:
    """Layers of z·sigmoid(z) on [batch, 64]; the loss and the training operator."""
    images = values = tf.placeholder(tf.float32, [None, 64], name="images")
    for layer in range(LAYERS):
        initializer = tf.glorot_uniform_initializer(seed=layer)
        weights = tf.get_variable(f"weights{layer}", [64, 64], initializer=initializer)
        summed = tf.matmul(values, weights)
        values = tf.multiply(summed, tf.sigmoid(summed), name=f"product{layer}")
    loss = tf.reduce_mean(tf.square(values), name="loss")
    return images, loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def steps(plan: tf.Plan, images: Any, loss: Any, train: Any) -> list[float]:
    tf.build_execution_graph(plan=plan)
    batch = np.random.default_rng(0).random((256, 64))
    return [float(tf.run([loss, train], {images: batch})[0]) for _ in range(4)]


@pytest.mark.usefixtures("sums_alone")
def test_a_limit_below_all_others_is_met_and_training_is_the_same(tmp_path: Path) -> None:
    tf.init(devices=2, cluster="2x8-v100")
    images, loss, train = gated()
    alone: Any = {"batch_size": 256, "pipeline": False, "microbatches": 1}
    plain = tf.find_strategy(save_memory=False, **alone)
    frugal = tf.find_strategy(save_memory=True, **alone)
    least, less = (min(memory for memory, _ in plan.frontier) for plan in (plain, frugal))
    assert less < least
    assert frugal.time_nanoseconds == plain.time_nanoseconds
    limit = int((less + least) / 2 * plain.cluster.safety_factor)
    with pytest.raises(tf.errors.InfeasibleError, match=r"Try find_strategy\(save_memory=True\)"):
        tf.find_strategy(memory_limit_bytes=limit, save_memory=False, **alone)
    plan = tf.find_strategy(memory_limit_bytes=limit, **alone)
    assert plan.memory_bytes < least
    assert {operator.kept for operator in plan.operators} > {"both"}
    plan.save(tmp_path / "plan.json")
    loaded = tf.Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    found = steps(loaded, images, loss, train)
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=1)
    images, loss, train = gated()
    assert found == pytest.approx(steps(tf.find_strategy(batch_size=256), images, loss, train))
    assert found[-1] < found[0]
