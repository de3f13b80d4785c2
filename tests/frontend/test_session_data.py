"""Data pipelines and metrics, as scripts use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.frontend.inputs.data_pipelines import Pipelines
from tensoropt.frontend.job.job import current
from tests.proofs import proof

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(20, 8)).astype(np.float32)
LABELS = RANDOM.integers(4, size=20).astype(np.int64)


def classify(features: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Scores, loss and training operator of a linear classifier."""
    weights = tf.get_variable("weights", [8, 4], initializer=tf.ones_initializer())
    scores = tf.matmul(features, weights)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
    return scores, loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def dataset(features: Any = FEATURES, labels: Any = LABELS, seed: int | None = 3) -> Any:
    data = tf.data.Dataset.from_tensor_slices((features, labels))
    data = data.map(lambda x, y: (2.0 * x, y)).shuffle(20, seed=seed)
    return data.batch(8)


def epoch(session: Any, fetches: Any) -> list[Any]:
    found = []
    while True:
        try:
            found.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            return found


def one_shot_losses(session_type: Any) -> list[float]:
    with plain.Graph().as_default(), session_type() as session:
        elements = tf.data.make_one_shot_iterator(dataset().repeat(2)).get_next()
        _, loss, train = classify(*elements)
        session.run(tf.global_variables_initializer())
        return [loss for loss, _ in epoch(session, [loss, train])]


def test_a_one_shot_iterator() -> None:
    """Three batches an epoch, the last of which no number of ranks divides."""
    truth = one_shot_losses(plain.Session)
    found = one_shot_losses(tf.Session)
    assert len(truth) == 6
    assert found == pytest.approx(truth, rel=1e-5)


def initializable_losses(session_type: Any) -> list[float]:
    with plain.Graph().as_default(), session_type() as session:
        features = tf.placeholder(tf.float32, [None, 8])
        labels = tf.placeholder(tf.int64, [None])
        iterator = tf.data.make_initializable_iterator(dataset(features, labels))
        _, loss, train = classify(*iterator.get_next())
        session.run(tf.global_variables_initializer())
        losses = []
        for rows in (20, 12):
            fed = {features: FEATURES[:rows], labels: LABELS[:rows]}
            session.run(iterator.initializer, fed)
            losses += [loss for loss, _ in epoch(session, [loss, train])]
        return losses


def test_an_initializable_iterator() -> None:
    truth = initializable_losses(plain.Session)
    assert len(truth) == 5
    assert initializable_losses(tf.Session) == pytest.approx(truth, rel=1e-5)


def test_elements_are_planned_as_placeholders_are() -> None:
    elements = tf.data.make_one_shot_iterator(dataset()).get_next()
    scores, _, train = classify(*elements)
    with tf.Session() as session:
        session.run(train)
        plan = current().plan
        assert plan is not None
        assert plan.batch_placeholders == ("IteratorGetNext/fed_0", "IteratorGetNext/fed_1")
        assert plan.shapes == {"IteratorGetNext/fed_0": (8, 8), "IteratorGetNext/fed_1": (8,)}
        first, _, again = session.run([elements[0], train, scores])
        assert first.shape == (8, 8)
        assert again.shape == (8, 4)


def test_a_strategy_asked_for_before_any_data() -> None:
    _, loss, train = classify(*tf.data.make_one_shot_iterator(dataset()).get_next())
    with pytest.raises(tf.errors.TensorOptError, match="IteratorGetNext"):
        tf.find_strategy()
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=8))
    assert np.isfinite(tf.run([loss, train])[0])


def test_an_iterator_for_several_datasets() -> None:
    """A feedable iterator, whose handle says where the elements come from."""
    handle = tf.placeholder(tf.string, [])
    data = tf.data.Dataset.range(3), tf.data.Dataset.range(10, 13)
    iterators = [tf.data.make_one_shot_iterator(d) for d in data]
    kinds = tf.data.get_output_types(data[0]), tf.data.get_output_shapes(data[0])
    element = tf.data.Iterator.from_string_handle(handle, *kinds).get_next()
    with tf.Session() as session:
        handles = [session.run(iterator.string_handle()) for iterator in iterators]
        found = [session.run(element * 2, {handle: handles[n]}) for n in (0, 1, 0, 1)]
    assert found == [0, 20, 2, 22]


def test_unseeded_shuffles_follow_the_job() -> None:
    orders = []
    for _ in range(2):
        with plain.Graph().as_default(), tf.Session() as session:
            data = tf.data.Dataset.range(50).shuffle(50).repeat(2)
            data = data.map(lambda n: (n, plain.random_uniform([])))
            orders.append(epoch(session, tf.data.make_one_shot_iterator(data).get_next()))
    assert len(orders[0]) == 100
    assert orders[0] == orders[1]  # one job: one seed
    numbers = [int(number) for number, _ in orders[0]]
    assert sorted(numbers[:50]) == list(range(50))
    assert numbers[:50] != numbers[50:]
    assert numbers[:50] != list(range(50))
    assert len({float(draw) for _, draw in orders[0]}) > 90


def streamed(session_type: Any) -> list[Any]:
    """Accuracy and mean loss gathered over batches in local variables, reset between epochs."""
    with plain.Graph().as_default(), session_type() as session:
        features = tf.placeholder(tf.float32, [None, 8])
        labels = tf.placeholder(tf.int64, [None])
        scores, loss, _ = classify(features, labels)
        accuracy, more = tf.metrics.accuracy(labels, tf.argmax(scores + features[:, :4], 1))
        mean, more_mean = tf.metrics.mean(loss)
        session.run(tf.global_variables_initializer())
        found = []
        for _ in range(2):
            session.run(tf.local_variables_initializer())
            for first in (0, 8, 16):
                rows = slice(first, first + 8)
                fed = {features: FEATURES[rows], labels: LABELS[rows]}
                found.append(session.run([more, more_mean], fed))
            found.append(session.run([accuracy, mean]))
        return found


def test_metrics_gather_over_batches() -> None:
    np.testing.assert_allclose(streamed(tf.Session), streamed(plain.Session), rtol=1e-5)


def test_an_epoch_in_a_monitored_session() -> None:
    _, loss, train = classify(*tf.data.make_one_shot_iterator(dataset()).get_next())
    tf.train.get_or_create_global_step()
    found = []
    with tf.train.MonitoredTrainingSession() as session:
        while not session.should_stop():
            found.append(session.run([loss, train])[0])
    assert found == pytest.approx(one_shot_losses(plain.Session)[:3], rel=1e-5)


def goes_on(kind: str, steps: int, path: str, restores: bool) -> list[Any]:
    """Losses and rows of a job's steps. A job saves after three steps, or restores before it goes
    on; one without a path runs through."""
    with plain.Graph().as_default():
        numbers = np.arange(20, dtype=np.int64)
        data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS, numbers))
        data = data.shuffle(20, seed=3).batch(8).repeat(3)
        make = {"one shot": tf.data.make_one_shot_iterator}
        iterator = make.get(kind, tf.data.make_initializable_iterator)(data)
        features, labels, rows = iterator.get_next()
        features = tf.nn.dropout(features, rate=0.5, seed=5)
        _, loss, train = classify(features, labels)
        saver = tf.train.Saver()
        with tf.Session() as session:
            if restores:
                saver.restore(session, path)
                saver.save(session, path)  # before the first draw
            else:
                session.run(tf.global_variables_initializer())
            if kind != "one shot":
                session.run(iterator.initializer)
            found = [session.run([loss, rows, train])[:2] for _ in range(steps)]
            if path and not restores:
                saver.save(session, path)
                session.run(rows)  # not in the checkpoint
    return found


@pytest.mark.parametrize("kind", ["one shot", "initializable"])
def test_a_job_on_other_devices_goes_on_with_the_data_it_has_not_seen(
    kind: str, tmp_path: Any
) -> None:
    """Losses, with dropout, and rows are those of a job that was not interrupted."""
    truth = goes_on(kind, 9, "", False)
    path = str(tmp_path / "model")
    tf.shutdown()
    tf.init(devices=2, save_beside=True)
    found = goes_on(kind, 4, path, False)
    tf.shutdown()
    tf.init(devices=3)
    goes_on(kind, 0, path, True)
    found += goes_on(kind, 5, path, True)
    for (loss, rows), (true_loss, true_rows) in zip(found, truth, strict=True):
        np.testing.assert_array_equal(rows, true_rows)
        assert loss == pytest.approx(true_loss, rel=1e-5)
    assert sorted(np.concatenate([rows for _, rows in found])) == sorted([*range(20)] * 3)


def drawn(kind: str, count: int, position: Any) -> tuple[list[list[int]], list[bytes]]:
    """The next batches of a pipeline, from a position or the start, and the position after them."""
    with plain.Graph().as_default() as graph:
        data = tf.data.Dataset.range(20).shuffle(20, seed=3)
        data = data.padded_batch(8) if "padded" in kind else data.batch(8)
        data = data.repeat(4).prefetch(2)
        make = tf.data.make_one_shot_iterator
        iterator = (make if "one shot" in kind else tf.data.make_initializable_iterator)(data)
        element = iterator.get_next()
        pipelines = Pipelines(graph, 0)
        pipelines.go_on_from(position)
        if "one shot" not in kind:
            pipelines.draw([iterator.initializer.name], [], {})
        batches = [
            [int(n) for array in pipelines.draw([element.op.name], [], {}).values() for n in array]
            for _ in range(count)
        ]
    return batches, pipelines.position()


@pytest.mark.parametrize("kind", ["one shot", "initializable", proof("padded")])
def test_positions_keep_the_orders_of_later_epochs(kind: str, capsys: Any) -> None:
    """Every position in the data goes on as one run does; one that cannot says so."""
    truth, _ = drawn(kind, 12, [])
    for count in range(1, 12):
        capsys.readouterr()
        _, position = drawn(kind, count, [])
        warned = "lacks the order of later epochs" in capsys.readouterr().err
        rest, _ = drawn(kind, 12 - count, position)
        assert warned or rest == truth[count:]
        assert kind == "padded" or not warned
