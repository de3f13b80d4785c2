"""Random strategies of a perceptron against plain TensorFlow, all ranks in one process."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Drawn,
    Script,
    Trained,
    draw,
    mlp,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

BATCHED = frozenset({"images", "labels"})
# `python -m tests.oracles.equality --models mlp` draws and trains as many more as one likes.
COUNTS = {2: 6, 4: 5, 6: 3, 8: 1, 16: 1}
# Types, devices and which of their strategies: most in float64, whose bar is the closer one, and
# some in float32, since the values of a strategy's steps differ by their type alone.
CASES = [
    ("float64", 2, slice(2)),
    ("float64", 4, slice(2)),
    ("float64", 6, slice(1)),
    ("float32", 4, slice(1)),
    proof("float64", 2, slice(2, None)),
    proof("float64", 4, slice(2, None)),
    proof("float64", 6, slice(1, None)),
    proof("float64", 8, slice(1)),
    proof("float64", 16, slice(1)),
    proof("float32", 6, slice(1)),
]
STEPS = 3
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

tensoropt.enable_graph_mode()


@functools.cache
def script(dtype: str) -> Script:
    return mlp(tf.as_dtype(dtype), STEPS)


@functools.cache
def truth(dtype: str) -> Trained:
    return train_plain(script(dtype))


@functools.cache
def drawn(devices: int) -> list[Drawn]:
    mesh = Mesh.of(devices)
    graph = script("float32").imported()
    choices = strategy_choices(graph, mesh, BATCHED)
    random = np.random.default_rng(devices)
    return [draw(graph, choices, mesh, random) for _ in range(COUNTS[devices])]


def test_the_strategies_reduce_and_compute_redundantly() -> None:
    total = sum(COUNTS.values())
    reduces = {n: sum(d.reduces for d in drawn(n)) for n in COUNTS}
    redundant = {n: sum(d.redundant for d in drawn(n)) for n in COUNTS}
    distinct = sum(len({d.numbers for d in drawn(n)}) for n in COUNTS)
    print(f"{total} strategies, {distinct} distinct; by devices {COUNTS}")
    print(f"reduce over a split index: {reduces}; compute redundantly: {redundant}")
    assert distinct == total
    assert sum(reduces.values()) >= 0.3 * total
    assert sum(redundant.values()) >= 0.3 * total


@pytest.mark.parametrize(("dtype", "devices", "numbers"), CASES, ids=str)
def test_training_equals_one_device(dtype: str, devices: int, numbers: slice) -> None:
    for number, strategy in list(enumerate(drawn(devices)))[numbers]:
        found = train_parallel(
            script(dtype), Mesh.of(devices), strategy.numbers, random_prices(number), BATCHED
        )
        assert worst_error(found, truth(dtype)) <= TOLERANCE[dtype], strategy.numbers
