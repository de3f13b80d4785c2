"""``find_strategy(rewrite=True)``: which plan comes out, what it says, and that it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.errors import OptionError, PlanError
from tensoropt.plan import Plan

WIDTH, RANK, BATCH = 512, 4, 128


def adapted() -> tuple[Any, Any, Any]:
    """Layers whose frozen weights have a trained difference of low rank: a step takes two thirds
    of the time once a product is of each summand."""
    given = tf.placeholder(tf.float32, [None, WIDTH], name="given")
    values = given
    for layer in range(2):
        start = tf.glorot_uniform_initializer(seed=layer)
        frozen = tf.get_variable(f"frozen{layer}", [WIDTH, WIDTH], None, start, trainable=False)
        down = tf.get_variable(f"down{layer}", [WIDTH, RANK], None, start)
        up = tf.get_variable(f"up{layer}", [RANK, WIDTH], None, start)
        values = tf.nn.relu(tf.matmul(values, frozen + tf.matmul(down, up)), name=f"out{layer}")
    loss = tf.reduce_mean(tf.square(values - 1.0), name="loss")
    return given, loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def trained(rewrite: bool, checkpoint: Path) -> tuple[Plan, list[float], dict[str, Any]]:
    """The plan, losses of three steps, and the variables after them, which a saver has saved."""
    tf.reset_default_graph()
    tf.init(devices=2)
    given, loss, train = adapted()
    plan = tf.find_strategy(batch_size=BATCH, fetches=[train], rewrite=rewrite)
    tf.build_execution_graph("tensorflow", plan)
    batch = np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, train], {given: batch})[0] for _ in range(3)]
        hidden = session.run("out0:0", {given: batch})  # of part of the step
        values = {v.op.name: session.run(v) for v in tf.global_variables()}
        tf.train.Saver().save(session, str(checkpoint))
    tf.shutdown()
    return plan, losses, {**values, "hidden": hidden}


def test_a_rewritten_plan_is_faster_and_trains_the_same(tmp_path: Path) -> None:
    plan, losses, values = trained(False, tmp_path / "plain")
    faster, same_losses, same_values = trained(True, tmp_path / "rewritten")
    assert not plan.rewrites
    assert faster.rewrites
    assert faster.predicted_step_seconds < 0.97 * plan.predicted_step_seconds
    assert faster.graph_digest == plan.graph_digest
    assert min(time for _, time in faster.frontier) <= min(time for _, time in plan.frontier)
    assert any("matmul distributes over add" in each for each in faster.frontier_ways)
    np.testing.assert_allclose(same_losses, losses, rtol=1e-5)
    assert values.keys() == same_values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(same_values[name], value, rtol=1e-4, atol=1e-6)
    saved = tensorflow.train.load_checkpoint(str(tmp_path / "rewritten"))
    names = saved.get_variable_to_shape_map().keys() - {"tensoropt/position"}  # seeds' counters
    assert names == values.keys() - {"hidden"}
    for name in values.keys() - {"hidden"}:
        np.testing.assert_array_equal(saved.get_tensor(name), same_values[name])
    faster.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == faster
    command = [sys.executable, "-m", "tensoropt", "show", str(tmp_path / "plan.json")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for rewrite in faster.rewrites:
        assert rewrite.substitution in shown
    assert "proven from" in shown


def test_what_rewriting_is_not_for(fails: Callable[..., None]) -> None:
    tf.init(devices=2)
    adapted()
    rule = "rewritten graphs are searched by algorithm='ft'"
    call = lambda: tf.find_strategy(batch_size=BATCH, rewrite=True, algorithm="optcnn")  # noqa: E731
    fails(OptionError, rule, "algorithm='optcnn'", "leave one of the two out", call)


def test_substitutions_of_another_version_are_an_error() -> None:
    tf.init(devices=2)
    _, _, train = adapted()
    plan = tf.find_strategy(batch_size=BATCH, fetches=[train], rewrite=True)
    unknown = replace(plan.rewrites[0], substitution="of another version")
    with pytest.raises(PlanError, match="a plan's substitutions are proven"):
        tf.build_execution_graph("tensorflow", replace(plan, rewrites=(unknown,)))
