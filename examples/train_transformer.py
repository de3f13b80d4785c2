"""Train a Transformer to turn character sequences round, on Python's own documentation strings.

    python examples/train_transformer.py
    mpirun -np 2 python examples/train_transformer.py

The decoder reads the characters written so far and writes the source from its end to its
beginning. The last line that rank 0 prints is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import numpy.typing as npt
from library_text import Characters, library_text
from models import transformer

import tensoropt as tf

__all__ = ["main"]

Array = npt.NDArray[Any]


def draw(
    text: Array, batch: int, length: int, start: int, random: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Sources, what the decoder reads (a start token, then targets), targets: [batch, length]."""
    places = random.integers(len(text) - length, size=batch)[:, None] + np.arange(length)
    source = text[places]
    targets = source[:, ::-1]
    first = np.full([batch, 1], start, np.int32)
    return source, np.concatenate([first, targets[:, :-1]], axis=1), targets


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=1, help="of encoder and decoder each")
    parser.add_argument("--model-width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--feed-forward-width", type=int, default=128)
    parser.add_argument("--length", type=int, default=8, help="characters of a sequence")
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=64, help="global batch size")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--option", default="mini_time", choices=["mini_time", "mini_parallelism"])
    return parser.parse_args()


def main() -> None:
    """Train, test on held-out text, and say how it went."""
    options = arguments()
    tf.init()
    model = transformer(
        options.layers,
        options.model_width,
        options.heads,
        options.feed_forward_width,
        options.length,
        options.length,
        options.vocabulary,
        dropout=options.dropout,
        label_smoothing=0.1,
    )
    train_op = tf.train.AdamOptimizer(options.learning_rate).minimize(model.loss)
    guess = tf.argmax(model.scores, axis=2, output_type=tf.int32)
    right = tf.equal(guess, model.placeholders["targets"])
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))

    plan = tf.find_strategy(option=options.option, batch_size=options.batch)
    tf.build_execution_graph(engine="tensorflow", plan=plan)

    text = library_text()
    start = options.vocabulary - 1  # no character has this number
    numbers = Characters(text, options.vocabulary - 1).encode(text)
    held_out = len(numbers) // 10
    train_text, test_text = numbers[:-held_out], numbers[-held_out:]

    def feed(some: Array, random: np.random.Generator) -> dict[Any, Array]:
        drawn = draw(some, options.batch, options.length, start, random)
        names = ("source", "decoder_input", "targets")
        return {model.placeholders[n]: value for n, value in zip(names, drawn, strict=True)}

    random = np.random.default_rng(0)  # every rank draws the same batches
    for step in range(1, options.steps + 1):
        _, loss = tf.run([train_op, model.loss], feed(train_text, random))
        if step % 100 == 0 and tf.rank() == 0:
            print(f"step {step}/{options.steps}: loss {loss:.4f}", flush=True)
    random = np.random.default_rng(1)
    tests = [tf.run(accuracy, feed(test_text, random)) for _ in range(8)]
    if tf.rank() == 0:
        print(json.dumps({"test_accuracy": round(float(np.mean(tests)), 4), **tf.summary()}))


if __name__ == "__main__":
    main()
