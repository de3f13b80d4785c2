"""Derivatives and updates outside of steps where two ranks would train copies, in one process.

It prints, as a line of JSON, the errors of the updates that are refused. All else has to work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tensoropt
from tensoropt.frontend.job import copies, eager_copies

X = np.ones((8, 4), np.float32)


def model_and_loss() -> tuple[Any, Any]:
    """A model, and its loss as a function."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    return model, lambda: tf.reduce_mean(tf.square(model(X, training=True)))


def variable() -> Any:
    return tf.Variable(tf.ones([4, 1]), name="w")


def gradient(weights: Any) -> Any:
    """Return the gradient of a loss by a variable."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(X @ weights))
    return tape.gradient(loss, weights)


def derivatives() -> None:
    """What inspects, evaluates, restores and averages updates nothing that is trained."""
    model, loss_of = model_and_loss()
    target, _ = model_and_loss()
    mean, average = keras.metrics.Mean(), tf.train.ExponentialMovingAverage(0.9)
    inputs = tf.Variable(X)
    for _ in range(3):
        with tf.GradientTape(persistent=True) as tape:
            loss = loss_of()
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                scores = model(inputs)
            penalty = tf.norm(inner.gradient(scores, inputs))
        assert all(each is not None for each in tape.gradient(loss, model.trainable_variables))
        tape.gradient(penalty, model.trainable_variables)
        mean.update_state(loss)
        model.set_weights(model.get_weights())
        for own, other in zip(model.weights, target.weights, strict=True):
            other.assign(0.9 * other + 0.1 * own)  # a target network follows
        average.apply([each.value for each in model.trainable_variables])
    with TemporaryDirectory() as folder:
        model.save_weights(Path(folder, "m.weights.h5"))
        model.load_weights(Path(folder, "m.weights.h5"))
        checkpoint = tf.train.Checkpoint(model=model)
        checkpoint.restore(checkpoint.save(f"{folder}/ckpt"))
    optimizer = tf_keras.optimizers.legacy.Adam()
    fresh = variable()
    optimizer.apply_gradients([(tf.zeros_like(fresh), fresh)])  # makes the slots, to restore them
    weights = variable()
    gradient(weights)
    weights.assign(tf.zeros_like(weights))
    tf.function(lambda: gradient(weights))()
    with eager_copies.updates_allowed():
        weights.assign_sub(gradient(weights))


def updates() -> dict[str, Callable[[], Any]]:
    """What trains, by name."""

    def keras_applies(pairs: bool) -> None:
        model, loss_of = model_and_loss()
        with tf.GradientTape() as tape:
            loss = loss_of()
        found = tape.gradient(loss, model.trainable_variables)
        if pairs:
            pairs_of = zip(found, model.trainable_variables, strict=True)
            keras.optimizers.SGD().apply_gradients(pairs_of)
        else:
            keras.optimizers.Adam().apply(
                grads=found, trainable_variables=model.trainable_variables
            )

    def fits() -> None:
        model, _ = model_and_loss()
        model.compile("rmsprop", "mse")
        model.fit(X, X[:, :1], verbose=0)

    def applies(optimizer: Any) -> Callable[[], Any]:
        weights = variable()
        return lambda: optimizer.apply_gradients([(gradient(weights), weights)])

    def scatters() -> None:
        weights = variable()
        slices = tf.IndexedSlices(gradient(weights), tf.range(4))
        weights.scatter_sub(slices)

    def assigns(times: int) -> None:
        weights = variable()
        for _ in range(times):
            weights.assign(weights - 0.1 * gradient(weights))

    def subtracts() -> None:
        weights = variable()
        weights.assign_sub(0.1 * gradient(weights))

    def kernel() -> None:
        weights = variable()
        tf.raw_ops.ResourceApplyGradientDescent(
            var=weights.handle, alpha=0.1, delta=gradient(weights)
        )

    return {
        "keras": lambda: keras_applies(pairs=False),
        "keras_pairs": lambda: keras_applies(pairs=True),
        "keras_fit": fits,
        "tf_keras": applies(tf_keras.optimizers.Ftrl()),
        "tf_keras_legacy": applies(tf_keras.optimizers.legacy.SGD()),
        "tensorflow_1": applies(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)),
        "assign_sub": subtracts,
        "scatter_sub": scatters,
        "in_a_function": tf.function(lambda: assigns(1)),
        "again_and_again": lambda: assigns(2),
        "kernel": kernel,
    }


if __name__ == "__main__":
    tensoropt.init()
    copies.install(2)
    derivatives()
    refused = {}
    for name, update in updates().items():
        try:
            update()
        except Exception as error:  # AutoGraph raises another one, of the same text
            refused[name] = str(error)
    print(json.dumps(refused))
    copies.remove()
    subtract = updates()["assign_sub"]
    subtract()
    copies.install(2)
    weights = variable()
    change = 0.1 * gradient(weights)
    copies.remove()
    copies.install(2)  # another job, in which no tape has differentiated by them
    weights.assign_sub(change)
