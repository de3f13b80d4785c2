"""Train a Wide ResNet on drawn digits (8x8 images).

    python examples/train_wide_resnet.py
    mpirun -np 2 python examples/train_wide_resnet.py

The last line that rank 0 prints is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from drawn_digits import batches, digit_images
from models.wide_resnet import wide_resnet_scores

import tensoropt as tf

__all__ = ["main"]

CLASSES = 10
TEST_BATCHES = 3


def scores_of(images: Any, options: argparse.Namespace, training: bool) -> Any:
    """Scores of each class, shape [batch, 10]."""
    return wide_resnet_scores(
        images,
        options.depth,
        options.width,
        CLASSES,
        options.base_channels,
        small_images=True,
        training=training,
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=14, help="layers: 14, 26, 50, 101, 152")
    parser.add_argument("--width", type=int, default=2, help="widening scalar")
    parser.add_argument("--base-channels", type=int, default=4, help="channels before widening")
    parser.add_argument("--batch", type=int, default=120, help="global batch size")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--option", default="mini_time", choices=["mini_time", "mini_parallelism"])
    return parser.parse_args()


def main() -> None:
    """Train, test with the moving averages, and say how it went."""
    options = arguments()
    tf.init()
    images = tf.placeholder(tf.float32, [None, 8, 8, 1], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    loss = tf.softmax_cross_entropy(labels, scores_of(images, options, training=True))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.MomentumOptimizer(options.learning_rate, 0.9).minimize(loss)
    guess = tf.argmax(scores_of(images, options, training=False), axis=1, output_type=tf.int32)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(guess, labels), tf.float32))

    plan = tf.find_strategy(option=options.option, batch_size=options.batch)
    tf.build_execution_graph(engine="tensorflow", plan=plan)

    tests = TEST_BATCHES * options.batch
    train_images, train_labels, test_images, test_labels = digit_images(tests, [8, 8, 1])
    for epoch in range(options.epochs):
        losses = []
        for some_images, some_labels in batches(train_images, train_labels, options.batch, epoch):
            _, value = tf.run([train_op, loss], {images: some_images, labels: some_labels})
            losses.append(value)
        if tf.rank() == 0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {np.mean(losses):.4f}", flush=True)

    correct = tf.run(accuracy, {images: test_images, labels: test_labels})
    if tf.rank() == 0:
        print(json.dumps({"test_accuracy": round(float(correct), 4), **tf.summary()}))


if __name__ == "__main__":
    main()
