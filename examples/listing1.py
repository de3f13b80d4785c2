"""Listing 1 of the TensorOpt paper, as a script that runs.

python examples/listing1.py
mpirun -np 4 python examples/listing1.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensoropt

__all__ = ["main"]

BATCH, FEATURES, CLASSES = 256, 64, 16


def create_model(input: Any, labels: Any) -> Any:
    """One linear layer and its loss."""
    w = tensoropt.get_variable("w", [FEATURES, CLASSES])
    b = tensoropt.get_variable("b", [CLASSES], initializer=tensoropt.zeros_initializer())
    logits = tensoropt.matmul(input, w) + b
    return tensoropt.softmax_cross_entropy(labels, logits)


def training(loss: Any) -> Any:
    """The operator of one training step."""
    optimizer = tensoropt.GradientDescentOptimizer()
    train_op = optimizer.minimize(loss)
    return train_op  # noqa: RET504


def main() -> None:
    """Train for a few steps on made-up data."""
    tensoropt.init()
    input = tensoropt.placeholder(tensoropt.float32, [BATCH, FEATURES], name="input")
    label = tensoropt.placeholder(tensoropt.float32, [BATCH, CLASSES], name="label")
    loss = create_model(input, label)
    train_op = training(loss)
    plan = tensoropt.find_strategy(option="mini_time")
    tensoropt.build_execution_graph(engine="tensorflow", plan=plan)

    random = np.random.default_rng(0)
    features = random.normal(size=(BATCH, FEATURES))
    labels = np.eye(CLASSES)[random.integers(CLASSES, size=BATCH)]
    for step in range(10):
        tensoropt.run(train_op, feed_dict={input: features, label: labels})
        value = tensoropt.run(loss, feed_dict={input: features, label: labels})
        if tensoropt.rank() == 0:
            print(f"step {step}: loss {value:.4f}")


if __name__ == "__main__":
    main()
