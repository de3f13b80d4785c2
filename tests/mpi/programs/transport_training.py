"""Training by a transport and with host calls: the same bits, the same records, on two ranks.

mpirun -np 2 python transport_training.py mpi|network|horovod COUNT

With "network", each rank is on a machine of its own, as far as it can tell.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter

import numpy as np
import tensorflow as tf

import tensoropt
from collectives.horovod.transport import HorovodTransport
from collectives.transport.mpi import HOST_VARIABLE
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.execution.world.mpi_world import Call, MPIWorld, Transport
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search.baselines import data_parallel
from tests.oracles.equality import draw, executor_of, mlp, random_prices, train_parallel

BATCHED = frozenset({"images", "labels"})
MESH = Mesh.of(2)


def check_the_same_bits(worlds: list[MPIWorld], count: int) -> None:
    """Two ranks add up in one order only."""
    script = mlp(tf.float32, 4, dropout=0.25)
    choices = strategy_choices(script.imported(), MESH, BATCHED)
    random = np.random.default_rng(0)
    for number in range(count):
        numbers = draw(script.imported(), choices, MESH, random).numbers
        price = random_prices(number)
        agreement = current().agreement
        found, host = (
            train_parallel(script, MESH, numbers, price, BATCHED, world, agreement)
            for world in worlds
        )
        np.testing.assert_array_equal(found.losses, host.losses)
        for name, value in host.variables.items():
            np.testing.assert_array_equal(found.variables[name], value)


def check_what_is_told(world: MPIWorld) -> dict[str, int]:
    """A data-parallel step's time in collectives, with a timeline and without."""
    script, cost = mlp(tf.float32), ClusterCostModel(load_cluster("8-v100"), MESH)
    problem = graph_problem(AnnotatedGraph.of(script.imported(), MESH, cost, BATCHED))
    planned = problem.configurations(data_parallel.solve(problem).strategies[0].tolist())
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
    types = Counter(op.type for op in program.operations[0].graph.get_operations())
    executor.close()
    horovod = sum(count for kind, count in types.items() if kind.startswith("Horovod"))
    counts = {kind: types[kind] for kind in ("CollectivesAllreduce", "CollectivesMove", "PyFunc")}
    return {"calls": len(timeline), "Horovod": horovod, **counts}


def check_that_one_rank_may_end_first(transport: HorovodTransport, rank: int) -> None:
    """The second rank goes on by itself, while the first is at its end."""
    horovod = transport._horovod
    alone = horovod.add_process_set([1])
    if rank == 0:
        return
    time.sleep(1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.float32, [])
        assert session.run(horovod.allreduce(fed, op=horovod.Sum, process_set=alone), {fed: 2}) == 2


def main() -> None:
    if sys.argv[1] == "network":
        os.environ[HOST_VARIABLE] = f"machine-{os.environ['PMI_RANK']}"
    tensoropt.init()
    group = current().group
    names: tuple[Transport, Transport] = ("horovod" if sys.argv[1] == "horovod" else "mpi", "host")
    worlds = [MPIWorld(MESH, group, name) for name in names]
    check_the_same_bits(worlds, int(sys.argv[2]))
    found = {name: check_what_is_told(world) for name, world in zip(names, worlds, strict=True)}
    if group.rank == 0:
        print(json.dumps(found))
    if isinstance(worlds[0]._transport, HorovodTransport):
        check_that_one_rank_may_end_first(worlds[0]._transport, group.rank)


main()
