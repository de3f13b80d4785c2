"""``python -m tests.oracles.equality.uneven``: random strategies with uneven layouts.

All extents may be split, also where devices do not divide them. Reshapes that join the batch with
another dimension are split along it; half of the meshes cut the batch, and extents drawn at random,
in proportion to random speeds (`--speeds` gives another share). Each strategy trains a script of
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
from tensoropt.parallel.choices.joined import joined_units
from tensoropt.parallel.configuration import tied_extents
from tensoropt.parallel.mesh import Mesh, Shares
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
_FASTEST = 8


@functools.cache
def _script(name: str, batch: int) -> tuple[Script, Trained]:
    script = uneven_script(name, batch)
    return script, train_plain(script)


def mesh_of(
    script: Script, devices: int, batch: int, random: np.random.Generator, speeds: float = 0.0
) -> Mesh:
    """A mesh with the units of a script's extents.

    With the probability ``speeds`` it cuts the batch, and half of the other extents that have no
    units, in proportion to random speeds.
    """
    graph, shares = script.imported(), None
    if random.random() < speeds:
        shapes = (spec.shape for operator in graph for spec in operator.outputs)
        extents = {extent for shape in shapes for extent in shape if extent > devices}
        drawn = {extent for extent in sorted(extents) if random.random() < 0.5}
        of_each = tuple(int(speed) for speed in random.integers(1, _FASTEST + 1, devices))
        shares = Shares(of_each, tuple(sorted({batch, *drawn})))
    units = joined_units(graph, devices, BATCHED, in_proportion=shares is not None)
    return Mesh(Mesh.of(devices).axes, shares, units)


def _is_joined(strategy: Strategy, name: str) -> bool:
    """Whether an operator is split unevenly along an index with dimensions of several extents."""
    derivation, splits = strategy.derivations[name], strategy.configurations[name].splits
    return any(
        len(extents) > 1 and axes and not strategy.mesh.divides(index.extent, axes)
        for index, extents, axes in zip(
            derivation.indices, tied_extents(derivation), splits, strict=False
        )
    )


def _uneven_strategy(
    script: Script, mesh: Mesh, random: np.random.Generator
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Draw a strategy until it has uneven pieces; return it and its types of uneven operators.

    A reshape that is split along a joined batch counts as another type.
    """
    choices = choices_of(script, mesh, BATCHED)
    while True:
        numbers = draw(script.imported(), choices, mesh, random).numbers
        planned = planned_of(script, mesh, numbers, BATCHED)
        strategy = Strategy(script.imported(), mesh, planned, BATCHED)
        uneven = [name for name in strategy.configurations if strategy.is_uneven(name)]
        if uneven:
            joined = {"joined batch" for name in uneven if _is_joined(strategy, name)}
            return numbers, frozenset(strategy.graph[name].type for name in uneven) | joined


def main() -> int:
    """Compare the strategies; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.equality.uneven")
    parser.add_argument("--strategies", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speeds", type=float, default=0.5, help="share in proportion to speeds")
    parser.add_argument("--bodies", nargs="+", choices=tuple(BODIES), default=tuple(BODIES))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after these")
    options = parser.parse_args()
    tensoropt.init(allow_copies=True)
    job, begun = current(), time.monotonic()
    worst: dict[str, float] = {}
    of_devices: Counter[int] = Counter()
    types: Counter[str] = Counter()
    failures = 0
    with patch.object(choices_module, "uneven_extents", lambda *_: _EVERY):
        for number in range(options.strategies):
            late = time.monotonic() - begun > options.seconds
            if any(job.group.allgather_object(late)) if job.is_mpi else late:
                break
            random = np.random.default_rng([options.seed, number])
            name = options.bodies[number % len(options.bodies)]
            devices = job.group.size if job.is_mpi else int(random.integers(2, 9))
            batch = int(random.choice(BATCHES))
            script, truth = _script(name, batch)
            mesh = mesh_of(script, devices, batch, random, options.speeds)
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
            types.update(uneven)
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
        "joined": types["joined batch"],
        "failures": failures,
        "seconds": round(time.monotonic() - begun),
    }
    if job.group.rank == 0:
        print(json.dumps(found))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
