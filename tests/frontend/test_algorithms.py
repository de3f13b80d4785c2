"""``find_strategy(algorithm=...)``: other systems' strategies train the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt.search.solvers import REPRODUCED, SOLVERS

Regression = tuple[Any, Any, Any, Any]

OTHERS = ("data_parallel", "optcnn", "tofu", "tofu_recursive", "mesh_tensorflow")


def test_each_trains_to_the_same_losses(regression: Regression, tmp_path: Path) -> None:
    features, targets, loss, step = regression
    feed = {features: np.arange(32.0).reshape(8, 4) / 32, targets: np.ones(8)}
    tf.init(devices=4, cluster="2x8-v100")
    losses, seen = {}, set()
    free = tf.find_strategy(batch_size=8)
    assert free.algorithm == "ft"
    for algorithm in ("ft", *OTHERS):
        plan = tf.find_strategy(batch_size=8, algorithm=algorithm)
        assert plan.algorithm == algorithm
        assert plan.time_nanoseconds >= free.time_nanoseconds
        assert algorithm == "ft" or f"mini_time by {algorithm} on 4 devices" in str(plan)
        plan.save(tmp_path / "plan.json")
        assert tf.Plan.load(tmp_path / "plan.json") == plan
        tf.build_execution_graph(plan=plan)
        losses[algorithm] = [tf.run([loss, step], feed)[0] for _ in range(3)]
        seen.add(str(plan.configurations))
    for algorithm in OTHERS:
        np.testing.assert_allclose(losses[algorithm], losses["ft"], rtol=1e-5)
    assert losses["ft"][0] > losses["ft"][2]
    assert len(seen) > 1  # they are not one and the same strategy


def test_data_parallelism_has_the_whole_model_on_every_device(regression: Regression) -> None:
    tf.init(devices=4)
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel")
    splits = {operator.name: operator.splits for operator in plan.operators}
    assert not any(splits["weights"])
    assert splits["MatMul"][0] == (0, 1)
    assert len(plan.frontier) == 1


def test_a_limit_and_other_options_hold_for_what_an_algorithm_finds(regression: Regression) -> None:
    tf.init(devices=4)
    plan = tf.find_strategy(batch_size=64, algorithm="data_parallel")
    limit = int(plan.memory_bytes * 1.1) - 8
    with pytest.raises(tf.errors.InfeasibleError, match=f"least memory of {plan.memory_bytes:,}"):
        tf.find_strategy(batch_size=64, algorithm="data_parallel", memory_limit_bytes=limit)
    profile = tf.find_strategy("profiling", batch_size=64, algorithm="data_parallel")
    assert [point.time_seconds for point in profile][-1] == plan.predicted_step_seconds
    fewest = tf.find_strategy("mini_parallelism", batch_size=64, algorithm="data_parallel")
    assert (fewest.devices, fewest.algorithm) == (1, "data_parallel")


def test_an_unknown_algorithm_is_refused_with_the_names(regression: Regression) -> None:
    tf.init(devices=2)
    with pytest.raises(
        tf.errors.OptionError, match=r"an algorithm is one of ft, .*Got 'mesh'"
    ) as e:
        tf.find_strategy(batch_size=8, algorithm="mesh")
    assert all(name in str(e.value) for name in (*SOLVERS, *REPRODUCED))
