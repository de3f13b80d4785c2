"""Train one model under several random strategies and print how far each is from one device.

    python -m benchmarks.equality.strategies MODEL DEVICES SEED NUMBER...
    mpirun -np DEVICES python -m benchmarks.equality.strategies MODEL DEVICES SEED NUMBER...

Without mpirun all ranks are in the one process. A line of JSON for each strategy and type.
"""

from __future__ import annotations

import functools
import json
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.equality.engine import (
    Trained,
    choices_of,
    draw,
    draw_kept,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from benchmarks.equality.kinds import kept_kinds
from benchmarks.equality.scripts import model_script
from tensoropt.errors import TensorOptError
from tensoropt.execution.world import MPIWorld
from tensoropt.frontend.job import current
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy

__all__ = ["TYPES", "main"]

TYPES = ("float32", "float64")
REASON_CHARACTERS = 400
KEPT_SHARES = (0.5, 1.0, 0.0)  # of the operators, for which what is kept is drawn, by strategy


def main(model: str, devices: int, seed: int, numbers: list[int]) -> None:
    """Print a line per strategy and type; under mpirun rank 0 prints the worst of all ranks."""
    tensoropt.init()
    job = current()
    mesh = Mesh.of(devices)
    for dtype in TYPES:
        script = model_script(model, tf.as_dtype(dtype))
        batched = frozenset(script.feeds[0])
        truth = train_plain(script)
        choices = choices_of(script, mesh, batched)
        for number in numbers:
            random = np.random.default_rng([seed, zlib.crc32(model.encode()), devices, number])
            drawn = draw(script.imported(), choices, mesh, random)
            kept = draw_kept(choices, KEPT_SHARES[number % len(KEPT_SHARES)], random)
            planned = planned_of(script, mesh, drawn.numbers, batched, kept)
            kinds = drawn.kinds | kept_kinds(Strategy(script.imported(), mesh, planned, batched))
            train = functools.partial(
                train_parallel,
                script,
                mesh,
                drawn.numbers,
                random_prices(number),
                batched,
                kept=kept,
            )
            if job.is_mpi:
                error = worst_error(
                    train(world=MPIWorld(mesh, job.group), agreement=job.agreement), truth
                )
                error, reason = max(job.group.allgather_object(error)), ""
            else:
                error, reason = _attempt(train, truth)
            if job.group.rank == 0:
                _print(
                    model=model,
                    world="mpi" if job.is_mpi else "single-process",
                    devices=devices,
                    number=number,
                    type=dtype,
                    error=error if np.isfinite(error) else None,
                    reason=reason,
                    kinds=sorted(kinds),
                )


def _attempt(train: Callable[[], Trained], truth: Trained) -> tuple[float, str]:
    """The error, infinite with a reason where training fails: the next strategy may do better."""
    try:
        return worst_error(train(), truth), ""
    except (tf.errors.OpError, TensorOptError, ValueError, TypeError) as error:
        return float("inf"), f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]


def _print(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[4:]])
