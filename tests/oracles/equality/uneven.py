"""``python -m tests.oracles.equality.uneven``: random strategies with uneven layouts.

All extents may be split, also where devices do not divide them. Each strategy trains a script of
`tests.oracles.equality.uneven_scripts` in float64, on 2 to 8 ranks in this process; under ``mpirun
-np N`` on the N ranks. Losses and variables are compared with plain TensorFlow's on one device.
Every strategy has uneven layouts. ``--seed`` gives other strategies, so that parts can run one
after another. The program prints a line for each strategy that differs, and ends with one JSON
object; the exit status says whether all results lie within the bar.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections import Counter
from unittest.mock import patch

import numpy as np

import tensoropt
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices import choices as choices_module
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tests.oracles.equality.engine import (
    Script,
    Trained,
    choices_of,
    draw,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
)
from tests.oracles.equality.strategies import error_of_ranks
from tests.oracles.equality.uneven_scripts import BODIES, uneven_script

__all__ = ["BAR", "main"]

BAR = 1e-10
BATCHES = (3, 5, 7, 9, 11, 13)
BATCHED = frozenset({"x", "words"})
_EVERY = frozenset(range(2, 1000))


@functools.cache
def _script(name: str, batch: int) -> tuple[Script, Trained]:
    script = uneven_script(name, batch)
    return script, train_plain(script)


def _uneven_strategy(
    script: Script, mesh: Mesh, random: np.random.Generator
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Draw a strategy until it has uneven pieces; return it and its types of uneven operators."""
    choices = choices_of(script, mesh, BATCHED)
    while True:
        numbers = draw(script.imported(), choices, mesh, random).numbers
        planned = planned_of(script, mesh, numbers, BATCHED)
        strategy = Strategy(script.imported(), mesh, planned, BATCHED)
        uneven = [name for name in strategy.configurations if strategy.is_uneven(name)]
        if uneven:
            return numbers, frozenset(strategy.graph[name].type for name in uneven)


def main() -> int:
    """Compare the strategies; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.equality.uneven")
    parser.add_argument("--strategies", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after these")
    options = parser.parse_args()
    tensoropt.init(allow_copies=True)
    job, begun = current(), time.monotonic()
    worst: dict[str, float] = {}
    of_devices: Counter[int] = Counter()
    types: set[str] = set()
    failures = 0
    with patch.object(choices_module, "uneven_extents", lambda *_: _EVERY):
        for number in range(options.strategies):
            late = time.monotonic() - begun > options.seconds
            if any(job.group.allgather_object(late)) if job.is_mpi else late:
                break
            random = np.random.default_rng([options.seed, number])
            name = tuple(BODIES)[number % len(BODIES)]
            devices = job.group.size if job.is_mpi else int(random.integers(2, 9))
            mesh, batch = Mesh.of(devices), int(random.choice(BATCHES))
            script, truth = _script(name, batch)
            numbers, uneven = _uneven_strategy(script, mesh, random)
            train = functools.partial(
                train_parallel,
                script,
                mesh,
                numbers,
                random_prices(number),
                BATCHED,
                world=MPIWorld(mesh, job.group) if job.is_mpi else None,
                agreement=job.agreement if job.is_mpi else None,
            )
            error, reason = error_of_ranks(job, train, truth)
            worst[name] = max(worst.get(name, 0.0), error)
            of_devices[devices] += 1
            types |= uneven
            if error > BAR:
                failures += 1
                print(f"{name} {number}: {devices} devices, batch {batch}: {error} {reason}")
                sys.stdout.flush()
    found = {
        "strategies": of_devices.total(),
        "devices": dict(sorted(of_devices.items())),
        "worst_float64": worst,
        "bar": BAR,
        "uneven_types": sorted(types),
        "failures": failures,
        "seconds": round(time.monotonic() - begun),
    }
    if job.group.rank == 0:
        print(json.dumps(found))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
