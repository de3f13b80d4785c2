"""``python -m benchmarks.unequal_ranks``: ranks of different speed, with even shares and with
shares in proportion to speed.

Each of two ranks has a core, and another program computes on the core of the second; with ``--ranks
3``, the second and the third rank share a core instead. Steps of a perceptron run under both plans
in turns. Each plan has its predicted and its median measured time. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.launcher import figures_of_ranks
from tensoropt.report.text_table import table

__all__ = ["measured"]

_WARM_UP = 2
_BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"


def main() -> None:
    """Run the job, print a table, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 3))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a turn")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        _run(options)
        return
    found = measured(options)
    rows = [
        [name, *(f"{plan[column]:.1f}" for column in ("predicted_ms", "measured_ms"))]
        for name, plan in found["plans"].items()
    ]
    print("\n".join(note for plan in found["plans"].values() for note in plan["notes"]))
    print(table(["shares", "predicted, ms", "measured, ms"], rows, [False, True, True]))
    print(json.dumps(found))


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run both plans on ranks of different speed, and return their times."""

    def arguments(folder: str) -> list[str]:
        names = ("ranks", "batch", "width", "turns", "steps")
        given = [text for name in names for text in (f"--{name}", str(getattr(options, name)))]
        return [*given, "--run", folder]

    with _busy_core(_core(1)) if options.ranks == 2 else contextlib.nullcontext():
        ranks = figures_of_ranks("benchmarks.unequal_ranks", arguments, options.ranks, "none")
    plans = {}
    for name, plan in ranks[0]["plans"].items():
        steps = [
            max(times) for times in zip(*(rank["plans"][name]["ms"] for rank in ranks), strict=True)
        ]
        plans[name] = {
            "predicted_ms": plan["predicted_ms"],
            "measured_ms": median(steps),
            "predicted_over_measured": plan["predicted_ms"] / median(steps),
            "notes": plan["notes"],
        }
    gain = plans["even"]["measured_ms"] / plans["in proportion"]["measured_ms"]
    return {
        "ranks": options.ranks,
        "load": os.getloadavg()[0],
        "speeds": ranks[0]["speeds"],
        "planned": ranks[0]["planned"],
        "plans": plans,
        "even_over_in_proportion": gain,
    }


def _core(rank: int) -> int:
    """Return the core of a rank: the first rank has one to itself."""
    return sorted(os.sched_getaffinity(0))[min(rank, 1)]


@contextlib.contextmanager
def _busy_core(core: int) -> Iterator[None]:
    """Let another program compute on a core."""
    busy = subprocess.Popen([sys.executable, "-c", _BUSY % core])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def _run(options: argparse.Namespace) -> None:
    """Be one rank: plan, run both plans in turns, and write the figures."""
    rank = int(os.environ["PMI_RANK"])
    os.sched_setaffinity(0, {_core(rank)})  # before the import, for all threads

    import numpy as np

    import tensoropt as tf

    tf.init()
    random = np.random.default_rng(0)
    fed = {"x:0": random.normal(size=(options.batch, options.width)).astype(np.float32)}
    train = _training_step(options.batch, options.width)
    plans, figures = _plans()
    for name in [*plans] * options.turns:  # a graph has one plan at a time
        tf.build_execution_graph(plan=plans[name])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for step in range(_WARM_UP + options.steps):
                started = time.perf_counter()
                session.run(train, fed)
                if step >= _WARM_UP:
                    milliseconds = (time.perf_counter() - started) * 1e3
                    figures["plans"][name]["ms"].append(milliseconds)
    (options.run / f"rank-{rank}.json").write_text(json.dumps(figures))


def _training_step(batch: int, width: int) -> Any:
    """Return the training operator of a perceptron of four layers in the default graph."""
    import tensoropt as tf

    x = tf.placeholder(tf.float32, [batch, width], "x")
    for layer in range(4):
        x = tf.nn.relu(tf.matmul(x, tf.get_variable(f"weight{layer}", [width, width])))
    return tf.train.GradientDescentOptimizer(1e-3).minimize(tf.reduce_mean(tf.square(x)))


def _plans() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fastest plan with each kind of shares, and the figures of planning."""
    import tensoropt as tf
    from tensoropt.frontend.job.first_rank import on_first_rank
    from tensoropt.frontend.job.job import current
    from tensoropt.plan import Plan

    planned, job = tf.find_strategy(), current()
    assert job.searched is not None, "a strategy was searched"
    even = job.searched[1]
    shared = even.in_proportion()
    if shared is None:
        raise RuntimeError("the ranks were measured to be as fast; is the machine idle?")
    plans = {}
    for name, request in (("even", even), ("in proportion", shared)):
        values = on_first_rank(job.group, partial(_values, request))
        plans[name] = Plan.from_json(values)
    return plans, {
        "planned": planned.way,
        "speeds": planned.cluster.speeds(planned.devices),
        "plans": {
            name: {
                "predicted_ms": plan.predicted_step_seconds * 1e3,
                "notes": plan.notes,
                "ms": [],
            }
            for name, plan in plans.items()
        },
    }


def _values(request: Any) -> dict[str, Any]:
    """Return the fastest plan of a request, with the batch at once, as JSON values."""
    from tensoropt.planner.offers.strategies import Strategies

    return Strategies.of(request).plan("mini_time").to_json()


if __name__ == "__main__":
    main()
