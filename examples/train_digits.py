"""Train a multilayer perceptron on drawn digits, on any number of devices.

    python examples/train_digits.py
    mpirun -np 4 python examples/train_digits.py

What makes this a parallel program are the lines that begin with ``tf.init``, ``tf.find_strategy``
and ``tf.build_execution_graph``. Data and initial values have seeds, so the losses that are printed
are the same on any number of ranks. The last line that rank 0 prints is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from drawn_digits import batches, digit_images

import tensoropt as tf
from tensoropt.view import view_of

__all__ = ["main"]

TEST_EXAMPLES = 357


def mlp(images: Any, hidden: int, layers: int, classes: int) -> Any:
    """Scores of each class, shape [batch, classes]."""
    values = images
    for layer in range(layers):
        with tf.variable_scope(f"layer{layer}"):
            inputs = int(values.shape[-1])
            weights = tf.get_variable(
                "weights", [inputs, hidden], initializer=tf.glorot_uniform_initializer(seed=layer)
            )
            bias = tf.get_variable("bias", [hidden], initializer=tf.zeros_initializer())
            values = tf.nn.relu(tf.matmul(values, weights) + bias)
    with tf.variable_scope("scores"):
        weights = tf.get_variable(
            "weights", [hidden, classes], initializer=tf.glorot_uniform_initializer(seed=layers)
        )
        bias = tf.get_variable("bias", [classes], initializer=tf.zeros_initializer())
        return tf.matmul(values, weights) + bias


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=1024, help="width of each hidden layer")
    parser.add_argument("--layers", type=int, default=2, help="number of hidden layers")
    parser.add_argument("--batch", type=int, default=240, help="global batch size")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--option", default="mini_time", choices=["mini_time", "mini_parallelism"])
    return parser.parse_args()


def main() -> None:
    """Train, test, and say how it went."""
    options = arguments()
    tf.init()
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    scores = mlp(images, options.hidden, options.layers, classes=10)
    loss = tf.softmax_cross_entropy(labels, scores)
    train_op = tf.train.MomentumOptimizer(options.learning_rate, 0.9).minimize(loss)
    correct = tf.equal(tf.argmax(scores, axis=1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

    plan = tf.find_strategy(option=options.option, batch_size=options.batch)
    tf.build_execution_graph(engine="tensorflow", plan=plan)
    if tf.rank() == 0:
        print(plan)
        for layer in view_of(plan).layers:
            print(f"  {layer.name}: {layer.words}")

    train_images, train_labels, test_images, test_labels = digit_images(TEST_EXAMPLES, [64])
    for epoch in range(options.epochs):
        losses = []
        for some_images, some_labels in batches(train_images, train_labels, options.batch, epoch):
            _, value = tf.run([train_op, loss], {images: some_images, labels: some_labels})
            losses.append(value)
        if tf.rank() == 0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {np.mean(losses):.4f}", flush=True)

    test_accuracy = tf.run(accuracy, {images: test_images, labels: test_labels})
    if tf.rank() == 0:
        print(json.dumps({"test_accuracy": round(float(test_accuracy), 4), **tf.summary()}))


if __name__ == "__main__":
    main()
