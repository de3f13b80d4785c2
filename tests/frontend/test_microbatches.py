"""``find_strategy(microbatches=k)``: a plan has it, runs follow it, and what cannot be says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt.errors import GraphError, OptionError

BATCH, WIDTH = 256, 16
EXAMPLES = np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32)


def trained(batch_norm: bool = False) -> tuple[Any, Any, Any]:
    """The loss of a perceptron, its scores and the training operator."""
    values = tf.placeholder(tf.float32, [None, WIDTH], name="examples")
    for layer in range(4):
        initializer = tf.glorot_uniform_initializer(seed=layer)
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=initializer)
        values = tf.tanh(tf.matmul(values, weights))
        if batch_norm:
            mean, variance = tf.nn.moments(values, [0])
            values = tf.nn.batch_normalization(values, mean, variance, None, None, 1e-3)
    loss = tf.reduce_mean(tf.square(values - 0.5), name="loss")
    return loss, values, tf.train.MomentumOptimizer(0.5, 0.9).minimize(loss)


def steps(plan: tf.Plan, loss: Any, scores: Any, train: Any) -> list[Any]:
    tf.build_execution_graph(plan=plan)
    return [tf.run([loss, scores, train], {"examples:0": EXAMPLES})[:2] for _ in range(3)]


def test_a_plan_of_microbatches_trains_as_one_of_the_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.init(devices=2, cluster="2x8-v100")
    built = trained()
    plain = tf.find_strategy(batch_size=BATCH)
    one = tf.find_strategy(batch_size=BATCH, microbatches=1)
    assert replace(one, looked_at=plain.looked_at) == plain
    plan = tf.find_strategy(batch_size=BATCH, microbatches=8, pipeline=False)
    assert (plan.microbatches, plain.microbatches) == (8, 1)
    assert plan.graph_digest == plain.graph_digest
    assert plan.memory_bytes < plain.memory_bytes
    assert plan.peak_bytes is not None
    assert plain.peak_bytes is not None
    assert plan.peak_bytes < plain.peak_bytes
    assert plan.peak_is_estimated  # far below the limit
    limit = int(1.2 * plan.peak_bytes)
    near = tf.find_strategy(
        batch_size=BATCH, microbatches=8, pipeline=False, memory_limit_bytes=limit
    )
    assert not near.peak_is_estimated
    assert near.peak_bytes == pytest.approx(plan.peak_bytes, rel=0.1)
    for each in (near, plan):
        assert len(each.frontier_peaks) == len(each.frontier) > 2
        assert None not in each.frontier_peaks
    assert plan.time_nanoseconds > plain.time_nanoseconds  # as many operators eight times
    plan.save(tmp_path / "plan.json")
    loaded = tf.Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    assert ", 8 microbatches; " in str(loaded)
    found = steps(loaded, *built)
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=1)
    built = trained()
    for own, truth in zip(found, steps(tf.find_strategy(batch_size=BATCH), *built), strict=True):
        np.testing.assert_allclose(own[0], truth[0], rtol=1e-5)
        np.testing.assert_allclose(own[1], truth[1], rtol=1e-4, atol=1e-6)


def sequences() -> tuple[Any, Any]:
    """The loss of layers z·sigmoid(z), which follow from z, and its training."""
    values = tf.reshape(
        tf.placeholder(tf.float32, [None, 256, WIDTH], name="examples"), [-1, WIDTH]
    )
    for layer in range(8):
        initializer = tf.glorot_uniform_initializer(seed=layer)
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=initializer)
        values = tf.matmul(values, weights)
        values *= tf.sigmoid(values)
    loss = tf.reduce_mean(tf.square(values), name="loss")
    return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def test_what_microbatches_alone_do_not_fit_is_computed_again() -> None:
    fed = {"examples:0": np.random.default_rng(1).normal(size=(2, 256, WIDTH)).astype(np.float32)}
    tf.init(devices=1, cluster="2x8-v100")
    loss, train = sequences()
    plain = tf.find_strategy(batch_size=2, pipeline=False)
    alone = tf.find_strategy(batch_size=2, microbatches=2)
    frugal = tf.find_strategy(batch_size=2, pipeline=False, save_memory=True)
    limit = int(0.9 * min(alone.frontier[0][0], frugal.frontier[0][0]))
    found = tf.find_strategy(batch_size=2, memory_limit_bytes=limit)
    assert (found.stages, found.microbatches) == ((), 2)
    assert any(each.kept == "recomputed" for each in found.operators)
    assert found.peak_bytes is not None
    assert found.peak_bytes <= limit
    times = [plan.predicted_step_seconds or 0.0 for plan in (plain, alone, found)]
    assert times == sorted(set(times))
    asked = tf.find_strategy(
        batch_size=2, microbatches=2, memory_limit_bytes=limit, save_memory=True
    )
    assert asked.time_nanoseconds == found.time_nanoseconds
    losses = []
    for plan in (plain, found):
        tf.build_execution_graph(plan=plan)
        losses.append([float(tf.run([loss, train], fed)[0]) for _ in range(3)])
        tf.shutdown()
        tf.reset_default_graph()
        tf.init(devices=1, cluster="2x8-v100")
        loss, train = sequences()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_what_cannot_be_microbatches() -> None:
    tf.init(devices=2)
    trained()
    for wrong in (0, 2.0, True):
        with pytest.raises(OptionError, match="microbatches is a whole number from 1"):
            tf.find_strategy(batch_size=BATCH, microbatches=wrong)
    with pytest.raises(GraphError, match=r"Got 'examples' of \[256, 16\] for 3 microbatches"):
        tf.find_strategy(batch_size=BATCH, microbatches=3)
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=2)
    trained(batch_norm=True)
    with pytest.raises(GraphError, match=r"'moments/\w+' \(SquaredDifference\) combines examples"):
        tf.find_strategy(batch_size=BATCH, microbatches=2)


def test_a_stage_without_variables_has_a_dry_run() -> None:
    tf.init(devices=2, cluster="2x8-v100")
    values = tf.placeholder(tf.float32, [None, 64], name="examples")
    values = tf.matmul(values, tf.get_variable("weights", [64, 64]))
    for _ in range(4):
        values = tf.tanh(values)
    for _ in range(4):
        values = tf.tanh(tf.concat([values, values], 1))
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))
    plan = tf.find_strategy(batch_size=64, pipeline=2, microbatches=2)
    last = max(plan.stages, key=lambda stage: stage.memory_bytes)
    assert last.peak_bytes is not None
    assert not any("dry run failed" in note for note in plan.notes)
    assert last == plan.stages[1]
