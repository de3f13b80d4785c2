"""Runs of the graph door without gradients: planned for the layouts of the training plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.execution.runtime.executor import Executor
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning import forward_plans
from tensoropt.planner.offers import strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.random_strategies import random_strategies
from tests.proofs import proof

SPLIT_ONLY = Path(__file__).parents[1] / "mpi" / "programs" / "split_only_ranks.py"
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(24, 8)).astype(np.float32)
TARGETS = RANDOM.normal(size=(24, 4)).astype(np.float32)


def predictions() -> tuple[Any, Any, Any, Any, Any]:
    """A training step, and a sum over examples that no training step computes."""
    features = tf.placeholder(tf.float32, [None, 8], name="features")
    targets = tf.placeholder(tf.float32, [None, 4], name="targets")
    first = tf.get_variable("first", [8, 16], initializer=tf.ones_initializer())
    second = tf.get_variable("second", [16, 4], initializer=tf.ones_initializer())
    outputs = tf.matmul(tf.nn.relu(tf.matmul(features, first)), second)
    loss = tf.reduce_mean(tf.square(outputs - targets))
    train = tf.GradientDescentOptimizer(0.01).minimize(loss)
    errors = tf.reduce_sum(tf.abs(tf.nn.softmax(outputs) - targets), axis=0)
    return features, targets, train, loss, errors


@pytest.mark.parametrize("seed", [0, 1, proof(2), proof(3)])
@pytest.mark.parametrize("is_first", [False, True], ids=["after training", "before training"])
def test_a_run_on_test_data_equals_plain_tensorflow_under_random_strategies(
    seed: int, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(request: Request, devices: int, *_: object) -> Any:
        problem = problem_of(request, devices)
        (strategy,) = random_strategies(problem, 1, seed, [0.6])
        planned = problem.configurations(strategy)
        for name, fixed in request.fixed.items():
            assert planned[name].splits == fixed.splits
        return problem, single_strategy(problem.problem, strategy)

    added: list[int] = []
    add = Executor.add

    def noted(executor: Executor, configurations: Any, batches: Any) -> None:
        added.append(len(configurations[0]))
        add(executor, configurations, batches)

    monkeypatch.setattr(Executor, "add", noted)
    monkeypatch.setattr(strategies, "search_frontier", search)
    monkeypatch.setattr(strategies, "preferred", lambda *_: None)
    monkeypatch.setattr(forward_plans, "_LEAST_WORK", 0)
    features, targets, train, loss, errors = predictions()
    whole = {features: FEATURES, targets: TARGETS}
    part = {features: FEATURES[:7], targets: TARGETS[:7]}  # a last batch that no split divides
    steps: list[Any] = [(train, whole), (errors, whole), (train, whole), (errors, part)]
    steps += [([errors, loss], whole)]
    steps = [steps[1], *steps] if is_first else steps
    v1 = tensorflow.compat.v1
    with v1.Session() as plain:
        plain.run(v1.global_variables_initializer())
        truths = [plain.run(fetches, feed) for fetches, feed in steps]
    tf.init(devices=4)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for (fetches, feed), truth in zip(steps, truths, strict=True):
            if fetches is train and current().plan is None:
                options: Any = {"pipeline": False, "microbatches": 1, "rewrite": False}
                tf.build_execution_graph(plan=tf.find_strategy(batch_size=24, **options))
            found = session.run(fetches, feed)
            if fetches is not train:
                for one, other in zip(
                    tensorflow.nest.flatten(found), tensorflow.nest.flatten(truth), strict=True
                ):
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(added) >= 2  # runs of other operators, or of other fetches


def test_a_search_that_fails_is_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features, targets, _, _, errors = predictions()
    monkeypatch.setattr(forward_plans, "_LEAST_WORK", 0)
    monkeypatch.setattr(Request, "limit_bytes", lambda *_: 64)
    tf.init(devices=4)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(errors, {features: FEATURES, targets: TARGETS})
    assert found.shape == (4,)
    note = "a run without gradients is not planned: InfeasibleError: a run fits the usable memory"
    assert note in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "examples"),
    [("devices of one process", 16), proof("devices of one process", 20), proof("ranks", 20)],
)
def test_a_model_that_fits_only_split_is_evaluated_saved_and_trained_on_by_others(
    others: str,
    examples: int,
    mpirun: Callable[..., Any],
    python: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Two ranks begin, and four others go on: in processes of their own, or all in one. Batches
    have eight examples."""
    begun = mpirun(2, SPLIT_ONLY, tmp_path, "begin", str(examples))
    assert begun.returncode == 0, begun.stderr
    going_on = (SPLIT_ONLY, tmp_path, "go_on", str(examples))
    in_one = {"TENSOROPT_DEVICES": "4"}
    ended = mpirun(4, *going_on) if others == "ranks" else python(*going_on, env=in_one)
    assert ended.returncode == 0, ended.stderr
    compared = python(SPLIT_ONLY, tmp_path, "plain", str(examples))
    assert compared.returncode == 0, compared.stderr
    errors = json.loads(compared.stdout.splitlines()[-1])
    assert all(error < 1e-5 for error in errors.values()), errors
