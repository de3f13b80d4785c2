"""``python -m tests.oracles.equality.in_proportion``: pieces in proportion to speeds.

Random strategies on devices of random speeds train as plain TensorFlow on one device does. The
extents that are cut in proportion are drawn, too. Without mpirun, one process has 2 to 6 virtual
ranks; under mpirun, each rank is a process. The last line is one JSON object. The exit status says
whether all errors lie within 1e-10, in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import Job, current
from tensoropt.parallel.mesh import Mesh, Shares
from tests.oracles.equality.engine import (
    Script,
    Trained,
    choices_of,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.scripts import MODELS, SCRIPTS, mlp

__all__ = ["BAR", "error_of", "mesh_of"]

BAR = 1e-10
_FASTEST = 8
_SHARE = 0.7  # of the extents that are cut in proportion

BUILDERS: Mapping[str, Callable[[tf.DType], Script]] = {
    "mlp": lambda dtype: mlp(dtype, 3, 12, (48, 101, 53)),
    **{name: SCRIPTS[name] for name in MODELS},
}


def mesh_of(script: Script, devices: int, random: np.random.Generator) -> Mesh:
    """A mesh of devices of random speeds, which cuts random extents of a script in proportion."""
    extents = {
        extent
        for operator in script.imported()
        for spec in operator.outputs
        for extent in spec.shape
        if extent > 1
    }
    drawn = tuple(extent for extent in sorted(extents) if random.random() < _SHARE)
    speeds = tuple(int(speed) for speed in random.integers(1, _FASTEST + 1, devices))
    return Mesh(Mesh.of(devices).axes, Shares(speeds, drawn))


def error_of(script: Script, devices: int, seed: int, job: Job | None = None) -> float:
    """The worst error of a random strategy, in one process or on the ranks of a job."""
    random = np.random.default_rng([seed, devices])
    mesh, batched = mesh_of(script, devices, random), frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    drawn = draw(script.imported(), choices, mesh, random)
    world = agreement = None
    if job is not None and job.is_mpi:
        world, agreement = MPIWorld(mesh, job.group), job.agreement
    trained = train_parallel(
        script,
        mesh,
        drawn.numbers,
        random_prices(seed),
        batched,
        world=world,
        agreement=agreement,
    )
    return worst_error(trained, _plain(script))


@lru_cache(maxsize=1)
def _plain(script: Script) -> Trained:
    return train_plain(script)


def main() -> int:
    """Train under all strategies, print the worst error of each model, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=tuple(BUILDERS), choices=tuple(BUILDERS))
    parser.add_argument("--strategies", type=int, default=10, help="of each model")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tensoropt.init(allow_copies=True)
    job = current()
    group = job.group
    worst: dict[str, float] = {}
    for model in options.models:
        script = BUILDERS[model](tf.float64)
        for number in range(options.strategies):
            devices = group.size if group.size > 1 else 2 + number % 5
            error = error_of(script, devices, options.seed + number, job)
            error = max(group.allgather_object(error))
            worst[model] = max(error, worst.get(model, 0.0))
            if group.rank == 0 and error > BAR:
                sys.stdout.write(f"{model}, {devices} devices, strategy {number}: {error:.2g}\n")
    if group.rank == 0:
        line = {"strategies": options.strategies, "ranks": group.size, "worst": worst}
        sys.stdout.write(json.dumps(line) + "\n")
    return int(max(worst.values()) > BAR)


if __name__ == "__main__":
    sys.exit(main())
