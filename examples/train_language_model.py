"""Train an LSTM language model on the characters of Python's own documentation strings.

    python examples/train_language_model.py
    mpirun -np 2 python examples/train_language_model.py

Perplexity is the exponential of the mean cross entropy of the next character. The last line that
rank 0 prints is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import numpy.typing as npt
from library_text import Characters, library_text
from models import lstm_language_model

import tensoropt as tf

__all__ = ["main"]

Array = npt.NDArray[Any]


def draw(text: Array, batch: int, steps: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Sequences from random places, and the characters that follow: both [batch, steps]."""
    starts = random.integers(len(text) - steps, size=batch)[:, None] + np.arange(steps)
    return text[starts], text[starts + 1]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=128, help="width of embedding and states")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--length", type=int, default=12, help="characters of a sequence")
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64, help="global batch size")
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--option", default="mini_time", choices=["mini_time", "mini_parallelism"])
    return parser.parse_args()


def main() -> None:
    """Train, test on held-out text, and say how it went."""
    options = arguments()
    tf.init()
    model = lstm_language_model(options.hidden, options.layers, options.length, options.vocabulary)
    optimizer = tf.train.AdamOptimizer(options.learning_rate)
    gradients, variables = zip(*optimizer.compute_gradients(model.loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    train_op = optimizer.apply_gradients(zip(clipped, variables, strict=True))

    plan = tf.find_strategy(option=options.option, batch_size=options.batch)
    tf.build_execution_graph(engine="tensorflow", plan=plan)

    text = library_text()
    numbers = Characters(text, options.vocabulary).encode(text)
    held_out = len(numbers) // 10
    train_text, test_text = numbers[:-held_out], numbers[-held_out:]

    def feed(some: Array, random: np.random.Generator) -> dict[Any, Array]:
        tokens, targets = draw(some, options.batch, options.length, random)
        return {model.placeholders["tokens"]: tokens, model.placeholders["targets"]: targets}

    def test() -> float:
        random = np.random.default_rng(1)  # the same sequences each time
        losses = [tf.run(model.loss, feed(test_text, random)) for _ in range(8)]
        return float(np.exp(np.mean(losses)))

    random = np.random.default_rng(0)  # every rank draws the same batches
    before = test()
    for step in range(1, options.steps + 1):
        _, loss = tf.run([train_op, model.loss], feed(train_text, random))
        if step % 100 == 0 and tf.rank() == 0:
            print(f"step {step}/{options.steps}: perplexity {np.exp(loss):.2f}", flush=True)
    after = test()
    if tf.rank() == 0:
        perplexities = {"perplexity_before": round(before, 2), "test_perplexity": round(after, 2)}
        print(json.dumps({**perplexities, **tf.summary()}))


if __name__ == "__main__":
    main()
