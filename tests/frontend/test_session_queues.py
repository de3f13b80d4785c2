"""Queues, the threads that fill them, and what scripts of TensorFlow 1 rely on besides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(20, 8)).astype(np.float32)
LABELS = RANDOM.integers(4, size=20).astype(np.int64)


def classify(features: Any, labels: Any) -> tuple[Any, Any]:
    """Loss and training operator of a linear classifier."""
    weights = tf.get_variable("weights", [8, 4], initializer=tf.ones_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.matmul(features, weights))
    return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def queue_losses(session_type: Any) -> list[float]:
    """Two epochs out of a queue of examples and a queue of batches, filled by threads."""
    with plain.Graph().as_default(), session_type() as session:
        example = tf.train.slice_input_producer([FEATURES, LABELS], num_epochs=2, shuffle=False)
        features, labels = tf.train.batch(example, 8, allow_smaller_final_batch=True)
        loss, train = classify(2.0 * features, labels)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        found = []
        try:
            while not coordinator.should_stop():
                found.append(session.run([loss, train])[0])
        except tf.errors.OutOfRangeError:
            coordinator.request_stop()
        coordinator.join(threads)
    return found


def test_queues_that_threads_fill() -> None:
    truth = queue_losses(plain.Session)
    found = queue_losses(tf.Session)
    assert len(truth) == 5
    assert found == pytest.approx(truth, rel=1e-5)


def test_a_queue_that_the_script_fills_and_closes() -> None:
    rows = tf.placeholder(tf.float32, [None, 2])
    queue = tf.queue.FIFOQueue(10, [tf.float32], [[2]])
    fill, close, length = queue.enqueue_many(rows), queue.close(), queue.size()
    doubled = 2.0 * queue.dequeue()
    with tf.Session() as session:
        session.run(fill, {rows: [[1, 2], [3, 4]]})
        session.run(close)
        assert session.run(length) == 2
        assert [session.run(doubled).tolist() for _ in range(2)] == [[2, 4], [6, 8]]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(doubled)


def test_shapes_that_only_the_script_knows() -> None:
    """A Python function's result has the shape that the script gives it: it can be planned."""
    features = tf.placeholder(tf.float32, [None, 8])
    labels = tf.placeholder(tf.int64, [None])
    halves = tf.py_func(lambda x: x / 2, [features], tf.float32)
    halves.set_shape([20, 8])
    loss, train = classify(halves, labels)
    truth = []
    with tf.Session() as session:
        for _ in range(3):
            truth.append(session.run([loss, train], {features: FEATURES, labels: LABELS})[0])
    assert truth == sorted(truth, reverse=True)
    multiply = next(op for op in plain.get_default_graph().get_operations() if op.type == "MatMul")
    plan = tf.find_strategy(batch_size=20)
    assert plan.configurations[multiply.name].splits


def test_dimensions_have_values() -> None:
    """A dimension has a ``value``, as in TensorFlow 1, whose scripts read it."""
    images = tf.placeholder(tf.float32, [None, 28, 28])
    assert images.shape[1].value == 28
    assert images.get_shape()[0].value is None
    rows = tf.reshape(images, [-1, int(np.prod(images.get_shape()[1:].as_list()))])
    assert rows.shape.as_list() == [None, 784]


def test_a_variable_is_fetched_by_its_tensors_name() -> None:
    weights = tf.get_variable("weights", [3], initializer=tf.ones_initializer())
    handle = plain.get_default_graph().get_tensor_by_name("weights:0")
    with tf.Session() as session:
        session.run(weights.assign([1.0, 2.0, 3.0]))
        assert session.run("weights:0").tolist() == [1, 2, 3]
        assert session.run({"all": [handle]})["all"][0].tolist() == [1, 2, 3]
