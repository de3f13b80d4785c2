"""``python -m benchmarks.composition.measured``: a combination under a memory limit, run in turns.

A small mixer is planned on 4 ranks of this machine with a memory limit, by default and with each
option alone. The plans of the default and of the best option alone run in turns under ``mpirun``.
The slowest rank determines the time of a step, and the median of steps counts. The last line is one
JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf
from benchmarks.composition.options import combined
from benchmarks.launcher import result_of
from benchmarks.speed.measure import Way, medians, planned_step
from tensoropt.errors import InfeasibleError
from tensoropt.frontend.job.job import current
from tensoropt.plan.plan import Plan

__all__ = ["main"]

_RANKS, _BATCH, _LAYERS, _TOKENS, _WIDTH, _HIDDEN = 4, 8, 3, 256, 128, 256
_LIMIT_BYTES = 3_800_000
_NONE: Mapping[str, Any] = {
    "rewrite": False,
    "pipeline": False,
    "microbatches": 1,
    "save_memory": False,
}
"""Options of `find_strategy` that allow only the whole batch at once."""
_ALONE: Mapping[str, Mapping[str, Any]] = {
    "rewrite": {"rewrite": True},
    "pipeline": {"pipeline": "auto", "microbatches": None},
    "microbatches": {"microbatches": None},
    "save_memory": {"save_memory": True},
}
"""Each option alone, with the other options forbidden; stages have microbatches."""
_SEARCH_SECONDS = 120.0
"""Enough seconds for the search to end by itself on a quiet machine; planning takes about 20
seconds of one core."""


def main() -> None:
    """Start the ranks and print the first rank's output."""
    print(json.dumps(result_of(__spec__.name, [], _RANKS)))


def measure(result: Path) -> None:
    """Plan and run; every rank calls."""
    tf.init()
    train = _step()
    default = _planned({})
    assert default is not None, "the combination fits"
    alone = {option: _planned({**_NONE, **allowed}) for option, allowed in _ALONE.items()}
    fitting = {option: plan for option, plan in alone.items() if plan is not None}
    best = min(fitting, key=lambda option: fitting[option].executed_nanoseconds)
    plans = {"default": default, best: fitting[best]}
    examples = np.random.default_rng(0).normal(size=(_BATCH, _TOKENS, _WIDTH)).astype(np.float32)
    graph, feeds = tf.get_default_graph(), {"examples": examples}
    steps = {name: planned_step(plan, graph, train, feeds) for name, plan in plans.items()}
    found = medians(current().group, {name: Way(step) for name, step in steps.items()})
    if tf.rank() == 0:
        told = {
            "limit_bytes": _LIMIT_BYTES,
            "combines": combined(default),
            "predicted_ms": {
                name: None if plan is None else round(plan.executed_nanoseconds / 1e6, 2)
                for name, plan in {"default": default, **alone}.items()
            },
            "measured_ms": {name: round(each, 2) for name, each in found.items()},
            "peak_bytes": {name: plan.peak_bytes for name, plan in plans.items()},
        }
        result.write_text(json.dumps(told))


def _step() -> str:
    """Build the training step; return the name of its training operator."""

    def gated(values: Any) -> Any:
        return values * tf.sigmoid(1.702 * values)

    def dense(values: Any, name: str, size: int) -> Any:
        rows, width = values.shape[1:]
        weights = tf.get_variable(name, [width, size])
        made = tf.matmul(tf.reshape(values, [-1, width]), weights)
        return tf.reshape(made, [-1, rows, size])

    values = tf.placeholder(tf.float32, [None, _TOKENS, _WIDTH], name="examples")
    for layer in range(_LAYERS):
        mixed = dense(tf.transpose(values, [0, 2, 1]), f"tokens{layer}", _TOKENS)
        values += tf.transpose(gated(mixed), [0, 2, 1])
        values += dense(gated(dense(values, f"in{layer}", _HIDDEN)), f"out{layer}", _WIDTH)
    loss = tf.reduce_mean(tf.reduce_mean(tf.square(values), [1, 2]))
    return str(tf.train.GradientDescentOptimizer(0.01).minimize(loss).name)


def _planned(options: Mapping[str, Any]) -> Plan | None:
    """The plan with some options; None if nothing fits."""
    try:
        found: Plan = tf.find_strategy(
            batch_size=_BATCH,
            memory_limit_bytes=_LIMIT_BYTES,
            search_seconds=_SEARCH_SECONDS,
            **options,
        )
    except InfeasibleError:
        return None
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    else:
        main()
