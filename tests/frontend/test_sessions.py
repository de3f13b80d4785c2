"""Sessions as scripts use them: fetches, feeds, defaults, and planning by itself."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.frontend.job.job import current

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1
BATCH = 8


def regression() -> tuple[Any, Any, Any]:
    """Placeholder, loss and training operator of a linear model."""
    x = tf.placeholder(tf.float32, [None, 8], name="x")
    weights = tf.get_variable("weights", [8, 4], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
    return x, loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def batch(rows: int = BATCH, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float32)


def plain_losses(rows: list[int]) -> list[float]:
    """What plain TensorFlow makes of `regression` on batches of so many rows."""
    with plain.Graph().as_default(), plain.Session() as session:
        x, loss, train = regression()
        session.run(plain.global_variables_initializer())
        return [session.run([loss, train], {x: batch(n, step)})[0] for step, n in enumerate(rows)]


def test_the_import_prints_nothing() -> None:
    program = "import tensoropt as tf; tf.init(); assert tf.Session().list_devices()"
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(command, env=quiet, capture_output=True, text=True, check=True)
    assert finished.stdout == ""
    assert "tensorflow" not in finished.stderr


def test_a_fetched_variable_is_the_changed_one_and_what_is_made_from_it_is_not() -> None:
    """This holds for TensorFlow 1's reference variables. All ranks must agree on it."""
    x, loss, _ = regression()
    step = tf.train.get_or_create_global_step()
    following = step + 1
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, step)
    weights = tf.trainable_variables()[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(20):
            fetched = session.run([train, step, following, weights], {x: batch(seed=number)})
            assert fetched[1:3] == [number + 1, number + 1]
            assert np.array_equal(fetched[3], session.run(weights))


@pytest.mark.parametrize("kind", ["MutableHashTable", "DenseHashTable"])
def test_what_a_run_puts_into_a_table_the_next_one_finds(kind: str) -> None:
    special = {"empty_key": -1, "deleted_key": -2} if kind == "DenseHashTable" else {}
    table = getattr(tf.lookup.experimental, kind)(tf.int64, tf.float32, 0.0, **special)
    keys, values = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None])
    put, found = table.insert(keys, values), table.lookup(keys)
    with tf.Session() as session:
        session.run(put, {keys: [1, 2], values: [3.0, 4.0]})
        assert session.run(found, {keys: [2, 1, 5]}).tolist() == [4.0, 3.0, 0.0]
        assert session.run(table.size()) == 2


def test_a_script_that_plans_nothing_trains() -> None:
    x, loss, train = regression()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert current().plan is None
        before = session.run(loss, {x: batch()})
        found = [session.run([loss, train], {x: batch(seed=step)})[0] for step in range(3)]
    assert before == pytest.approx(found[0])
    assert found == pytest.approx(plain_losses([BATCH] * 3), rel=1e-5)
    plan = current().plan
    assert plan is not None
    assert plan.option == "mini_time"
    assert plan.shapes == {"x": (BATCH, 8)}


def test_values_move_into_the_plan() -> None:
    x, loss, train = regression()
    weights = tf.global_variables()[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.assign(weights, 3 * np.ones([8, 4], np.float32)))
        assert current().plan is None
        before = session.run(loss, {x: batch()})
        after = session.run([loss, train], {x: batch()})[0]
    assert current().plan is not None
    assert before == pytest.approx(after)
    assert before == pytest.approx(9 * plain_losses([BATCH])[0], rel=1e-5)


def test_values_move_into_an_explicit_plan() -> None:
    x, loss, _ = regression()
    with tf.Session() as session:
        session.run(tf.assign(tf.global_variables()[0], 2 * np.ones([8, 4], np.float32)))
        before = session.run(loss, {x: batch()})
        tf.build_execution_graph(plan=tf.find_strategy(batch_size=BATCH))
        assert session.run(loss, {x: batch()}) == pytest.approx(before)


def test_batches_of_several_sizes_share_the_variables() -> None:
    x, loss, train = regression()
    rows = [BATCH, BATCH, 5, BATCH, 1, 12]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = []
        for step, n in enumerate(rows):
            found.append(session.run([loss, train], {x: batch(n, step)})[0])
    assert found == pytest.approx(plain_losses(rows), rel=1e-5)


def test_structures_of_fetches() -> None:
    x, loss, train = regression()
    weights = tf.global_variables()[0]
    Pair = collections.namedtuple("Pair", ["first", "second"])
    sparse = tf.SparseTensor([[0, 1]], tf.reshape(loss, [1]), [2, 2])
    slices = plain.IndexedSlices(tf.ones([1, 8]), tf.constant([3]))
    feed = {x: batch()}
    with tf.Session() as session:
        truth = session.run(loss, feed)
        found = session.run(
            {"list": [loss, "x:0"], "pair": Pair(loss, (train, weights)), "sparse": sparse}, feed
        )
        assert found["list"][0] == pytest.approx(truth)
        np.testing.assert_array_equal(found["list"][1], feed[x])
        assert isinstance(found["pair"], Pair)
        assert found["pair"].second[0] is None
        assert found["pair"].second[1].shape == (8, 4)
        assert found["sparse"].values == pytest.approx([truth])
        assert session.run(slices).indices.tolist() == [3]
        assert session.run("x:0", feed).shape == (BATCH, 8)
        assert session.run([]) == []
        with pytest.raises(tf.errors.FetchError, match="Got None"):
            session.run(None)
        with pytest.raises(tf.errors.FetchError, match="nothing_of_that_name"):
            session.run("nothing_of_that_name:0")
        assert session.run("weights:0").shape == (8, 4)  # a variable's tensor means its value
        with pytest.raises(tf.errors.FetchError, match="handle"):
            session.run(tf.queue.FIFOQueue(1, [tf.float32]).queue_ref)


def test_the_default_session() -> None:
    x, loss, train = regression()
    weights = tf.global_variables()[0]
    with tf.Session() as session:
        assert tf.get_default_session() is session
        tf.global_variables_initializer().run()
        assert loss.eval({x: batch()}) == pytest.approx(plain_losses([BATCH])[0], rel=1e-5)
        train.run({x: batch()})
        np.testing.assert_array_equal(weights.eval(), session.run(weights))
        weights.load(np.zeros([8, 4], np.float32))
        assert not weights.eval().any()
    assert tf.get_default_session() is None
    with pytest.raises(tf.errors.StateError, match="closed"):
        session.run(loss, {x: batch()})


def test_an_interactive_session(graph: Any) -> None:
    x, loss, _ = regression()
    session = tf.InteractiveSession()
    assert session.graph is graph
    tf.global_variables_initializer().run()
    assert loss.eval({x: batch()}) == pytest.approx(plain_losses([BATCH])[0], rel=1e-5)
    session.close()
    assert tf.get_default_session() is None


def test_a_callable_and_what_is_not_there() -> None:
    x, loss, _ = regression()
    with tf.Session() as session:
        losses = session.make_callable(loss, [x])
        assert losses(batch()) == pytest.approx(session.run(loss, {x: batch()}))
        options, metadata = tf.RunOptions(), tf.RunMetadata()
        session.run(loss, {x: batch()}, options=options, run_metadata=metadata)
        with pytest.raises(tf.errors.StateError, match="a run is whole"):
            session.partial_run_setup([loss], [x])


def test_a_fed_tensor_cuts_the_graph() -> None:
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    hidden = tf.nn.relu(x, name="hidden")
    first, second = tf.split(hidden + 1.0, 2, axis=1)
    total = tf.reduce_sum(first) + 10 * tf.reduce_sum(second)
    with tf.Session() as session:
        assert session.run(total, {hidden: np.zeros([3, 4])}) == pytest.approx(66)
        assert session.run(total, {"hidden:0": np.ones([2, 4])}) == pytest.approx(88)
        fed = {x: np.zeros([3, 4]), second: np.zeros([3, 2])}
        assert session.run(total, fed) == pytest.approx(6)
        assert session.run([second, total], {**fed, first: np.ones([1, 2])})[1] == pytest.approx(2)


def test_what_does_not_fit_is_refused() -> None:
    x, loss, _ = regression()
    with tf.Session() as session:
        with pytest.raises(tf.errors.FeedError, match="no value for 'x'"):
            session.run(loss)
        with pytest.raises(tf.errors.FeedError, match="converts to its placeholder's type"):
            session.run(loss, {x: [["a"] * 8]})
        with pytest.raises(tf.errors.FeedError, match=r"Got \[8, 7\]"):
            session.run(loss, {x: np.zeros([8, 7])})
        with pytest.raises(tf.errors.FeedError, match="is in the script's graph"):
            session.run(loss, {"y:0": 1})
        with pytest.raises(tf.errors.FeedError, match="run it first"):
            session.run(loss, {x: tf.zeros([8, 8])})


def test_two_graphs_have_plans_of_their_own() -> None:
    x, loss, train = regression()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = [session.run([loss, train], {x: batch(seed=0)})[0]]
        first = current().plan
    with plain.Graph().as_default(), tf.Session() as other:
        y, other_loss, other_train = regression()
        tf.build_execution_graph(plan=tf.find_strategy(batch_size=4))
        other.run(tf.global_variables_initializer())
        other.run([other_loss, other_train], {y: batch(4)})
        assert current().plan is not first
    with tf.Session() as session:
        found.append(session.run([loss, train], {x: batch(seed=1)})[0])
        assert current().plan is first
    assert found == pytest.approx(plain_losses([BATCH] * 2), rel=1e-5)


def test_names_that_are_tensorflows_too() -> None:
    with tf.Session() as session:
        assert tf.rank() == 0
        assert tf.size() == 2
        assert session.run([tf.rank(tf.zeros([2, 3])), tf.size(tf.zeros([2, 3]))]) == [2, 6]
        assert isinstance(tf.summary(), dict)
        assert session.run(tf.summary.scalar("loss", 1.0))
        assert tf.errors.OutOfRangeError is plain.errors.OutOfRangeError


def test_before_init_a_run_says_so() -> None:
    _, loss, _ = regression()
    tf.shutdown()
    with tf.Session() as session, pytest.raises(tf.errors.StateError, match="init"):
        session.run(loss)


def test_a_configuration_holds_where_it_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    x, _, step = regression()
    feed = {x: batch()}
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=BATCH))
    config = plain.ConfigProto(allow_soft_placement=True, operation_timeout_in_ms=60_000)
    with tf.Session(config=config) as session:
        session.run(step, feed)
    executor = current().executor
    assert executor is not None
    own = executor._session.opened._config
    assert own.allow_soft_placement
    assert own.operation_timeout_in_ms == 60_000
    assert own.graph_options.rewrite_options.disable_meta_optimizer
    assert "configuration" not in capsys.readouterr().err
    with tf.Session(config=plain.ConfigProto(operation_timeout_in_ms=1)) as session:
        session.run(step, feed)
    assert "Got another one later" in capsys.readouterr().err
