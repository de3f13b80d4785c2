"""Branches side by side: they are searched, planned, shown and run, and equal plain TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt.cli.main import main
from tests.oracles.equality import train_plain, worst_error
from tests.oracles.equality.side_by_side import forest, searched, trained
from tests.proofs import proof

tf.enable_graph_mode()

WIDTH = 64


@pytest.mark.parametrize("seed", [proof(1), 2])
def test_many_and_nested_branches_train_as_one_device(seed: int) -> None:
    """Without and with an operator that all branches read."""
    script = forest(seed)
    plan = searched(script, 4)
    assert (plan.schedule, len(plan.stages)) == ("side_by_side", 4)
    assert worst_error(trained(script, plan), train_plain(script)) <= 1e-10


def towers(layers: int, joined: bool) -> tuple[list[Any], dict[str, Any]]:
    """Losses and training operators of two towers that meet, or of two that do not; and a batch
    that no split divides."""
    tf.init(devices=2, cluster="2x8-v100")
    ends = []
    for tower in range(2):
        values = tf.placeholder(tf.float32, [None, WIDTH], name=f"tower{tower}")
        for layer in range(layers):
            make = tf.glorot_uniform_initializer(seed=layers * tower + layer)
            weights = tf.get_variable(f"tower{tower}_{layer}", [WIDTH, WIDTH], initializer=make)
            values = tf.tanh(tf.matmul(values, weights))
        ends.append(values)
    losses = (
        [tf.reduce_mean(tf.square(ends[0] - ends[1]))]
        if joined
        else [tf.reduce_mean(tf.square(end)) for end in ends]
    )
    train = [tf.train.GradientDescentOptimizer(0.5).minimize(loss) for loss in losses]
    random = np.random.default_rng(0)
    fed = {
        f"tower{tower}:0": random.normal(size=(3, WIDTH)).astype(np.float32) for tower in range(2)
    }
    return [*losses, *train], fed


@pytest.mark.parametrize("joined", [True, False])
def test_branches_run_side_by_side(
    joined: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Branches, each on a device, are planned, shown and run."""
    fetched, fed = towers(12 if joined else 4, joined)
    plan = tf.find_strategy(batch_size=3, pipeline="auto")
    alone = tf.find_strategy(batch_size=3, pipeline=False)
    assert (plan.schedule, plan.microbatches, len(plan.stages)) == ("side_by_side", 1, 2)
    assert 1.5 * plan.time_nanoseconds < alone.time_nanoseconds
    plan.save(tmp_path / "plan.json")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    shown = capsys.readouterr().out
    assert "side by side: a stage waits for other stages only where it reads" in shown
    found = []
    for each in (tf.Plan.load(tmp_path / "plan.json"), alone):
        tf.build_execution_graph(plan=each)
        count = len(fetched) // 2
        found.append([tf.run(fetched, fed)[:count] for _ in range(3)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_branches_that_look_up_one_table_are_in_one_stage() -> None:
    tf.init(devices=2, cluster="2x8-v100")
    table = tf.get_variable("table", [32, WIDTH])
    ends = []
    for tower in range(2):
        words = tf.placeholder(tf.int32, [None], name=f"words{tower}")
        values = tf.gather(table, words)
        for layer in range(4):
            weights = tf.get_variable(f"tower{tower}_{layer}", [WIDTH, WIDTH])
            values = tf.tanh(tf.matmul(values, weights))
        ends.append(values)
    tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(ends[0] * ends[1]))
    plan = tf.find_strategy(batch_size=3, pipeline="auto")
    assert plan.schedule != "side_by_side"
    assert min(time for _, time in plan.frontier) == plan.time_nanoseconds, (
        "none that cannot be run"
    )
