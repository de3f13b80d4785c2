"""Training with collectives in C++ and in Python: the same bits, the same records, on two ranks.

mpirun -np 2 python native_training.py
"""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.equality import draw, executor_of, mlp, planned_of, random_prices, train_parallel
from tensoropt.execution.world import Call, MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh

BATCHED = frozenset({"images", "labels"})
MESH = Mesh.of(2)


def check_the_same_bits(worlds: list[MPIWorld]) -> None:
    """Two ranks add up in one order only."""
    script = mlp(tf.float32, dropout=0.25)
    choices = strategy_choices(script.imported(), MESH, BATCHED)
    random = np.random.default_rng(0)
    for number in range(3):
        numbers = draw(script.imported(), choices, MESH, random).numbers
        price = random_prices(number)
        agreement = current().agreement
        native, host = (
            train_parallel(script, MESH, numbers, price, BATCHED, world, agreement)
            for world in worlds
        )
        np.testing.assert_array_equal(native.losses, host.losses)
        for name, value in host.variables.items():
            np.testing.assert_array_equal(native.variables[name], value)


def check_what_is_told(world: MPIWorld) -> dict[str, int]:
    """A step's time in collectives, with a timeline and without."""
    script = mlp(tf.float32)
    choices = strategy_choices(script.imported(), MESH, BATCHED)
    numbers = draw(script.imported(), choices, MESH, np.random.default_rng(1)).numbers
    planned = planned_of(script, MESH, numbers, BATCHED)
    executor = executor_of(
        script.graph, MESH, planned, random_prices(1), BATCHED, world, current().agreement
    )
    feeds = script.feeds[0]
    executor.run([], [script.train], feeds)
    timeline: list[Call] = []
    before = world.network_seconds
    executor.run([], [script.train], feeds)
    untold = world.network_seconds - before
    world.timeline = timeline
    executor.run([], [script.train], feeds)
    world.timeline = None
    told = world.network_seconds - before - untold
    assert untold > 0
    assert all(isinstance(call, Call) and call.started <= call.ended for call in timeline)
    assert abs(told - sum(call.ended - call.started for call in timeline)) < 1e-6
    program = executor.program([], [script.train], script.shapes)
    types = [op.type for op in program.operations[0].graph.get_operations()]
    executor.close()
    counts = {kind: types.count(kind) for kind in ("CollectivesMove", "PyFunc")}
    return {"calls": len(timeline), **counts}


def main() -> None:
    tensoropt.init()
    group = current().group
    native, host = MPIWorld(MESH, group), MPIWorld(MESH, group, is_native=False)
    check_the_same_bits([native, host])
    found = {"native": check_what_is_told(native), "host": check_what_is_told(host)}
    if group.rank == 0:
        print(json.dumps(found))


main()
