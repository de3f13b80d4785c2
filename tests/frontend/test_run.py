"""Running fetches on virtual ranks: structures, feeds, batch sizes, variables, sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.errors import StateError
from tensoropt.execution.stages.program_emitter import ProgramEmitter

Array = npt.NDArray[Any]
Regression = tuple[Any, Any, Any, Any]

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(24, 4)).astype(np.float32)
TARGETS = RANDOM.normal(size=24).astype(np.float32)


class Pair(NamedTuple):
    first: Any
    second: Any


flat = tensorflow.nest.flatten


def plain(steps: Sequence[tuple[Any, dict[Any, Array]]]) -> list[Any]:
    """What plain TensorFlow fetches from the default graph, step after step, on one device."""
    v1 = tensorflow.compat.v1
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return [session.run(fetches, feed) for fetches, feed in steps]


def parallel(
    steps: Sequence[tuple[Any, dict[Any, Array]]], devices: int = 4, batch_size: int | None = 24
) -> list[Any]:
    """What TensorOpt fetches for the same steps, under the strategy that it finds."""
    tf.init(devices=devices)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=batch_size))
    return [tf.run(fetches, feed) for fetches, feed in steps]


def test_text_is_whole_on_every_device() -> None:
    words = tf.placeholder(tf.string, [None], name="words")
    numbers = tf.cast(tf.reshape(tf.decode_raw(tf.identity(words), tf.uint8), [24, 3]), tf.float32)
    weights = tf.get_variable("weights", [3, 8], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(numbers, weights)))
    step = tf.GradientDescentOptimizer(1e-6).minimize(loss)
    feed = {words: np.array([b"abc", b"xyz", b"klm"] * 8, object)}
    steps = [([loss, step], feed), ([loss, words], feed)]
    expected = plain(steps)
    tf.init(devices=4)
    plan = tf.find_strategy(batch_size=24, algorithm="data_parallel")
    tf.build_execution_graph(plan=plan)
    assert not any(plan.configurations["words"].splits)
    found = [tf.run(fetches, fed) for fetches, fed in steps]
    assert found[0][0] == pytest.approx(expected[0][0], rel=1e-5)
    assert found[1][0] == pytest.approx(expected[1][0], rel=1e-5)
    assert list(found[1][1]) == list(expected[1][1])


def test_a_batch_as_large_as_one_share_is_reported_once(
    regression: Regression, capsys: pytest.CaptureFixture[str]
) -> None:
    features, targets, loss, train = regression
    share = {features: FEATURES[:6], targets: TARGETS[:6]}
    whole = {features: FEATURES, targets: TARGETS}
    parallel([(train, whole), (loss, share)])
    assert "global batch" not in capsys.readouterr().err
    for _ in range(2):
        tf.run(train, share)
    assert capsys.readouterr().err.count("Got 6 examples for 'features', and 24 were planned") == 1


@pytest.mark.parametrize("resource", [False, True])
def test_what_was_fetched_does_not_change_later(resource: bool) -> None:
    with tf.variable_scope("", use_resource=resource):
        weights = tf.get_variable("weights", [64, 64], initializer=tf.ones_initializer())
    same = tf.identity(weights)
    step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.square(weights)))
    tf.init(devices=1)
    tf.build_execution_graph(plan=tf.find_strategy())
    before = tf.run([weights, same])
    kept = [np.array(value) for value in before]
    tf.run(step)
    assert not np.array_equal(tf.run(weights), kept[0])
    for value, copy in zip(before, kept, strict=True):
        np.testing.assert_array_equal(value, copy)


def build_smallest(split: Sequence[str]) -> None:
    """Build the plan with the least memory, in which these operators are split."""
    tf.init(devices=4)
    alone: Any = {"batch_size": 24, "pipeline": False, "microbatches": 1, "save_memory": False}
    plan = tf.find_strategy(**alone)
    least = min(memory for memory, _ in plan.frontier)
    limit = int(least * plan.cluster.safety_factor) + 1
    plan = tf.find_strategy(memory_limit_bytes=limit, **alone)
    assert set(split) <= {operator.name for operator in plan.operators if operator.is_split}
    tf.build_execution_graph(plan=plan)


def test_a_structure_of_fetches_comes_back(regression: Regression) -> None:
    features, targets, loss, step = regression
    weights = tf.global_variables()[0]
    feed = {features: FEATURES, targets: TARGETS}
    fetches = {
        "list": [loss, step, loss],
        "tuple": (weights, "loss:0"),
        "named": Pair(step, [weights]),
        "operator": "GradientDescent",
        "nothing": [],
    }
    ((expected,), (got,)) = plain([(fetches, feed)]), parallel([(fetches, feed)])
    assert type(got) is dict
    assert list(got) == list(expected)
    assert type(got["list"]) is list
    assert type(got["tuple"]) is tuple
    assert type(got["named"]) is Pair
    assert got["list"][1] is got["named"].first is got["operator"] is None
    assert got["nothing"] == []
    assert got["list"][0] == got["list"][2] == got["tuple"][1]
    assert got["list"][0] == pytest.approx(expected["list"][0], rel=1e-6)
    assert isinstance(got["list"][0], np.float32)
    assert got["tuple"][0].shape == (4, 8)


def test_feeding_by_placeholder_tensor_name_or_operator_name(regression: Regression) -> None:
    features, targets, loss, _ = regression
    feeds: list[dict[Any, Array]] = [
        {features: FEATURES, targets: TARGETS},
        {"features:0": FEATURES, "targets": TARGETS},
        {features.op: FEATURES.tolist(), targets: TARGETS.astype(np.float64)},
    ]
    values = parallel([(loss, feed) for feed in feeds])
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_training_and_evaluation_at_other_batch_sizes(regression: Regression, devices: int) -> None:
    features, targets, loss, step = regression
    weights = tf.global_variables()[0]

    def feed(size: int) -> dict[Any, Array]:
        return {features: FEATURES[:size], targets: TARGETS[:size]}

    steps = [
        ([step, loss], feed(24)),
        (loss, feed(12)),  # evaluation
        ([step, loss], feed(7)),  # a last batch that no number of devices divides
        (loss, feed(1)),
        ([weights, loss], feed(24)),
    ]
    expected, got = plain(steps), parallel(steps, devices)
    for one, other in zip(got, expected, strict=True):
        for value, right in zip(flat(one), flat(other), strict=True):
            if right is not None:
                np.testing.assert_allclose(value, right, rtol=1e-5)


@pytest.mark.usefixtures("sums_alone")
def test_a_variable_stored_in_pieces_is_fetched_whole(regression: Regression) -> None:
    build_smallest(split=["weights"])
    features, targets, _, step = regression
    weights = tf.global_variables()[0]
    np.testing.assert_array_equal(tf.run(weights), np.ones((4, 8), np.float32))
    steps: list[tuple[Any, dict[Any, Array]]] = [
        ([step], {features: FEATURES, targets: TARGETS}),
        (weights, {}),
    ]
    got = [tf.run(fetches, feed) for fetches, feed in steps]
    expected = plain(steps)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-6)
    assert not np.array_equal(got[1], np.ones((4, 8)))


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_both_kinds_of_variables(use_resource: bool) -> None:
    features = tf.placeholder(tf.float32, [24, 4])
    with tf.variable_scope("", use_resource=use_resource):
        weights = tf.get_variable("weights", [4, 8], initializer=tf.ones_initializer())
        count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    step = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    counted = tf.assign_add(count, 2)
    kind = "VarHandleOp" if use_resource else "VariableV2"
    assert [op.type for op in tf.get_default_graph().get_operations()].count(kind) == 3
    steps: list[tuple[Any, dict[Any, Array]]] = [
        ([step, loss], {features: FEATURES}),
        ([step, loss], {features: FEATURES}),
        (counted, {}),
        ([weights, count], {}),
    ]
    expected, got = plain(steps), parallel(steps, batch_size=None)
    np.testing.assert_allclose(got[1][1], expected[1][1], rtol=1e-6)
    assert got[2] == expected[2] == got[3][1] == 2
    np.testing.assert_allclose(got[3][0], expected[3][0], rtol=1e-6)


def test_variables_are_not_the_arrays_that_they_were_fed() -> None:
    memory = np.empty(64 * 4 + 64, np.uint8)  # aligned arrays are fed without a copy
    begin = -memory.ctypes.data % 64
    given = memory[begin : begin + 64 * 4].view(np.float32)
    value = tf.placeholder(tf.float32, [64])
    weights = tf.get_variable("weights", [64], initializer=tf.zeros_initializer())
    load, grow = tf.assign(weights, value), tf.assign_add(weights, tf.ones([64]))
    tf.init(devices=2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        given[:] = 5
        session.run(load, {value: given})
        given[:] = 7
        session.run(grow)
        assert session.run(weights).tolist() == [6.0] * 64
        assert given.tolist() == [7.0] * 64


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "gradient descent": tf.GradientDescentOptimizer,
    "momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
    "adam": tf.train.AdamOptimizer,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_schedule_and_its_global_step(name: str) -> None:
    features = tf.placeholder(tf.float64, [24, 4])
    weights = tf.get_variable("weights", [4, 8], tf.float64, tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    count = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, count, 2, 0.5, staircase=True)
    step = OPTIMIZERS[name](rate).minimize(loss, global_step=count)
    steps: list[tuple[Any, dict[Any, Array]]] = [([step, loss], {features: FEATURES})] * 5
    steps.append(([count, rate, weights], {}))
    expected, got = plain(steps), parallel(steps, batch_size=None)
    assert [value for _, value in got[:5]] == pytest.approx([value for _, value in expected[:5]])
    assert got[5][0] == expected[5][0] == 5
    assert got[5][1] == pytest.approx(expected[5][1]) == 0.025
    np.testing.assert_allclose(got[5][2], expected[5][2], rtol=1e-7)


def test_a_session_runs_the_same(regression: Regression) -> None:
    features, targets, loss, step = regression
    feed = {features: FEATURES, targets: TARGETS}
    expected = plain([(step, feed), (loss, feed)])[1]
    tf.init(devices=4)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=24))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step, feed_dict=feed)
        assert session.run(loss, feed) == pytest.approx(expected, rel=1e-6)
        assert session.graph is tf.get_default_graph()
    assert tf.run(loss, feed) == pytest.approx(expected, rel=1e-6)  # variables are the job's


def test_the_graph_may_grow_after_the_execution_graph(regression: Regression) -> None:
    features, targets, loss, _ = regression
    feed = {features: FEATURES, targets: TARGETS}
    (before,) = parallel([(loss, feed)])
    late = tf.sqrt(loss) + tf.constant(1.0)
    assert tf.run(late, feed) == pytest.approx(np.sqrt(before) + 1, rel=1e-6)
    later = tf.get_variable("later", [3], initializer=tf.ones_initializer())
    np.testing.assert_array_equal(tf.run(later * 2), [2, 2, 2])


def test_a_new_plan_starts_afresh(regression: Regression) -> None:
    features, targets, loss, step = regression
    feed = {features: FEATURES, targets: TARGETS}
    first = parallel([(step, feed), (loss, feed)])
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=12))
    tf.run(step, feed)
    assert tf.run(loss, feed) == pytest.approx(first[1], rel=1e-6)


def test_sizes_and_summary(regression: Regression, monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets, _, step = regression
    monkeypatch.setenv("TENSOROPT_DEVICES", "3")
    tf.init()
    assert tf.is_initialized()
    assert (tf.rank(), tf.size(), tf.local_rank(), tf.local_size()) == (0, 3, 0, 3)
    plan = tf.find_strategy(batch_size=24)
    assert tf.summary()["predicted_step_seconds"] is None
    tf.build_execution_graph(plan=plan)
    for _ in range(3):
        tf.run(step, {features: FEATURES, targets: TARGETS})
    summary = tf.summary()
    assert list(summary) == [
        *("ranks", "world", "predicted_step_seconds", "measured_step_seconds"),
        *("predicted_network_seconds", "measured_network_seconds"),
        *("predicted_peak_bytes", "measured_peak_bytes", "advice"),
    ]
    assert summary["ranks"] == 3
    assert summary["world"] == "single-process"
    assert summary["predicted_step_seconds"] == plan.time_nanoseconds / 1e9
    assert float(str(summary["measured_step_seconds"])) > 0
    tf.shutdown()
    assert not tf.is_initialized()


def test_names_of_tensorflow_come_through() -> None:
    v1 = tensorflow.compat.v1
    assert tf.placeholder is v1.placeholder
    assert tf.train is v1.train
    assert tf.nn is v1.nn
    assert tf.matmul is v1.matmul
    assert tf.float32 is v1.float32
    assert tf.Session is not v1.Session
    assert tf.summary.FileWriter is v1.summary.FileWriter  # and a function of our own
    assert tf.gradients is v1.gradients  # recorded, wherever a script looks it up
    assert {"init", "find_strategy", "Session", "run"} <= set(dir(tf))


def test_a_plan_compares_what_it_predicted_with_what_its_steps_took() -> None:
    tf.reset_default_graph()
    tf.init(devices=2)
    values = tf.placeholder(tf.float32, [None, 4])
    weights = tf.get_variable("compared", [4, 2])
    step = tf.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(values, weights)))
    plan = tf.find_strategy(batch_size=8)
    with pytest.raises(StateError, match="Got compare before there is a plan"):
        tf.compare()
    tf.build_execution_graph(plan=plan)
    for _ in range(4):
        tf.run(step, {values: np.ones((8, 4))})
    comparison = tf.compare()
    assert comparison.steps == 3
    time = comparison.quantities[0]
    assert time.predicted == pytest.approx(plan.predicted_step_seconds * 1e3)
    summary = tf.summary()
    assert time.measured == pytest.approx(summary["measured_step_seconds"] * 1e3)
    assert summary["predicted_peak_bytes"] == plan.peak_bytes
    assert summary["advice"] == comparison.advice
    tf.shutdown()
    tf.reset_default_graph()


def test_building_emits_the_step_and_takes_the_steps_that_the_plan_records(
    regression: Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, targets, loss, step = regression
    feed = {features: FEATURES, targets: TARGETS}
    tf.init(devices=4)
    plan = tf.find_strategy(batch_size=24)
    assert plan.reshardings

    def refused(*given: object) -> None:
        raise AssertionError(f"planned anew: {given}")

    monkeypatch.setattr("tensoropt.planner.prices.reshard_steps.plan_reshard", refused)
    emitted: list[object] = []
    emit = ProgramEmitter.emit
    monkeypatch.setattr(ProgramEmitter, "emit", lambda self: [emitted.append(self), emit(self)])
    tf.build_execution_graph(plan=plan)
    assert len(emitted) == 1
    tf.run([step], feed)
    initialised = len(emitted)
    monkeypatch.undo()
    tf.run([step, loss], feed)
    assert len(emitted) == initialised == 2
    without = dataclasses.replace(plan, reshardings=())
    monkeypatch.setattr("tensoropt.planner.prices.reshard_steps.plan_reshard", refused)
    with pytest.raises(AssertionError, match="planned anew"):
        tf.build_execution_graph(plan=without)


def test_steps_are_the_runs_that_train(regression: Regression) -> None:
    """Neither initializers nor evaluations are compared with what a step was predicted to take."""
    features, targets, loss, step = regression
    feed = {features: FEATURES, targets: TARGETS}
    with tf.control_dependencies([step]):
        after = tf.identity(loss)
    tf.init(devices=2)
    plan = tf.find_strategy(batch_size=24)
    tf.build_execution_graph(plan=plan)
    tf.run(tf.global_variables_initializer())
    assert tf.summary()["measured_step_seconds"] is None
    tf.run(step, feed)
    tf.run(loss, feed)
    assert tf.compare().steps == 0
    tf.run([tf.group(step, loss.op)], feed)
    tf.run(after, feed)
    assert tf.compare().steps == 2
    assert tf.summary()["measured_step_seconds"]
