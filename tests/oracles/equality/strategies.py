"""Train one model under several random strategies and print how far each is from one device.

    python -m tests.oracles.equality.strategies MODEL DEVICES SEED KINDS NUMBER...

Under ``mpirun -np DEVICES`` each rank is a process, otherwise one process runs all ranks. KINDS are
separated by commas; '' stands for all. The program prints a line of JSON for each strategy and
type. On several machines all collectives of half of the strategies go within and across machines.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.cost.hierarchy import large_ones
from tensoropt.errors import TensorOptError
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.execution.world.resharding.resharder import GoesInHierarchy
from tensoropt.frontend.job.job import Job, current
from tensoropt.parallel.choices import uneven
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tests.oracles.equality.draws import drawn_of, kinds_of
from tests.oracles.equality.engine import (
    Script,
    Trained,
    choices_of,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.kinds import kept_kinds, split_kinds
from tests.oracles.equality.scripts import SCRIPTS, UNEVEN

__all__ = ["TYPES", "compare", "error_of_ranks", "main"]

TYPES = ("float32", "float64")
REASON_CHARACTERS = 400
Build = Callable[[tf.DType], Script]


Draw = Callable[[Script, int, np.random.Generator], tuple[Callable[[], Trained], Sequence[str]]]
"""Draws for a script by number and random generator; returns the training and its kinds."""


def compare(
    model: str, devices: int, seed: int, numbers: Sequence[int], build: Build, draw: Draw
) -> None:
    """Train a model under numbered draws, and print a line for each draw and type.

    Under mpirun rank 0 prints the worst error of all ranks.
    """
    job = current()
    scripts = {dtype: build(tf.as_dtype(dtype)) for dtype in TYPES}
    truths = {dtype: train_plain(script) for dtype, script in scripts.items()}
    for number, dtype in itertools.product(numbers, TYPES):
        random = np.random.default_rng([seed, zlib.crc32(model.encode()), devices, number])
        train, kinds = draw(scripts[dtype], number, random)
        error, reason = error_of_ranks(job, train, truths[dtype])
        if job.group.rank == 0:
            line = {
                "model": model,
                "world": "mpi" if job.is_mpi else "single-process",
                "devices": devices,
                "number": number,
                "type": dtype,
                "error": error if np.isfinite(error) else None,
                "reason": reason,
                "kinds": list(kinds),
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def error_of_ranks(job: Job, train: Callable[[], Trained], truth: Trained) -> tuple[float, str]:
    """The worst error of all ranks; in one process infinite, with a reason, if training fails.

    Other draws may work. Under mpirun a failure is raised: the other ranks may wait for this one.
    """
    if job.is_mpi:
        return max(job.group.allgather_object(worst_error(train(), truth))), ""
    try:
        return worst_error(train(), truth), ""
    except (tf.errors.OpError, TensorOptError, ValueError, TypeError) as error:
        return float("inf"), f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]


def main(model: str, devices: int, seed: int, kinds: tuple[str, ...], numbers: list[int]) -> None:
    """Compare strategies, see `compare`."""
    tensoropt.init(allow_copies=True)
    if model in UNEVEN:
        uneven._LEAST_PER_DEVICE = 1
    job, mesh = current(), Mesh.of(devices)

    def draw(
        script: Script, number: int, random: np.random.Generator
    ) -> tuple[Callable[[], Trained], Sequence[str]]:
        batched = frozenset(script.feeds[0])
        choices = choices_of(script, mesh, batched)
        wanted = kinds_of(number, kinds) if kinds else ()
        drawn, kept = drawn_of(script.imported(), choices, mesh, wanted, random)
        planned = planned_of(script, mesh, drawn, batched, kept)
        strategy = Strategy(script.imported(), mesh, planned, batched)
        found = split_kinds(script.imported(), planned, mesh) | kept_kinds(strategy)
        prices = random_prices(number)
        train = functools.partial(train_parallel, script, mesh, drawn, prices, batched, kept=kept)
        if job.is_mpi:
            is_divided = number % 4 >= 2
            divided: GoesInHierarchy = (lambda *_: True) if is_divided else large_ones
            world = MPIWorld(mesh, job.group, goes_in_hierarchy=divided)
            train = functools.partial(train, world=world, agreement=job.agreement)
        return train, sorted(found)

    compare(model, devices, seed, numbers, SCRIPTS[model], draw)


if __name__ == "__main__":
    _model, _devices, _seed, _kinds, *_numbers = sys.argv[1:]
    _asked = tuple(kind for kind in _kinds.split(",") if kind)
    main(_model, int(_devices), int(_seed), _asked, [int(number) for number in _numbers])
