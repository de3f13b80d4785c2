"""Trains a network, and writes the loss of every step.

    python -m benchmarks.same_losses.trained plain NETWORK STEPS RESULT.json
    mpirun -np 2 python -m benchmarks.same_losses.trained WAY,WAY,... NETWORK STEPS RESULT.json

Plain TensorFlow trains the network, and again with the examples of each batch in reverse: the same
mathematics, rounded otherwise. Every rank trains in the other ways, from the same initial values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import tensoropt
from benchmarks.same_losses.networks import NETWORKS, Network
from benchmarks.same_losses.ways import PLAIN, REVERSED, WAYS
from tensoropt.frontend.job.job import current

__all__: list[str] = []

Losses = dict[str, Any]


def main(ways: str, name: str, steps: int, result: Path) -> None:
    """Train a network in all ways; the first rank writes the losses by way."""
    network = NETWORKS[name]
    found = _plain(network, steps) if ways == "plain" else _ours(network, steps, ways.split(","))
    if ways == "plain" or current().group.rank == 0:
        result.write_text(json.dumps(found))


def _plain(network: Network, steps: int) -> Losses:
    return {
        name: {"losses": _trained(network, steps, tf.compat.v1.Session, turn)}
        for name, turn in ((PLAIN, 1), (REVERSED, -1))
    }


def _ours(network: Network, steps: int, ways: list[str]) -> Losses:
    tensoropt.init(allow_copies=True)
    found: Losses = {}
    for way in ways:
        told: dict[str, Any] = {}

        def planned(loss: Any, train: Any, way: str = way, told: dict[str, Any] = told) -> Any:
            plan = tensoropt.find_strategy(
                batch_size=network.batch, fetches=[loss, train], **WAYS[way]
            )
            tensoropt.build_execution_graph(plan=plan)
            told |= {"plan": str(plan), "substitutions": len(plan.rewrites)}

        losses = _trained(network, steps, tensoropt.Session, 1, planned)
        found[way] = {**told, "losses": losses}
    return found


def _trained(
    network: Network,
    steps: int,
    session_class: Callable[[], Any],
    turn: int,
    planned: Callable[[Any, Any], None] = lambda *_: None,
) -> list[float]:
    """Return the losses of a training in a graph of its own.

    Args:
        network: the network.
        steps: number of steps.
        session_class: makes the session.
        turn: -1 to feed the examples of each batch in reverse, else 1.
        planned: plans the step, from its loss and its operation.
    """
    batch = network.batches()
    losses = []
    with tf.Graph().as_default():
        training = network.build()
        planned(training.loss, training.train)
        with session_class() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for step in range(steps):
                values = batch(step)
                fed = {training.placeholders[name]: of[::turn] for name, of in values.items()}
                loss, _ = session.run([training.loss, training.train], fed)
                losses.append(float(loss))
    return losses


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
