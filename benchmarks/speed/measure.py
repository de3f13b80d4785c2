"""Times the steps of one model in several ways; the first rank writes the times to a file.

    mpirun -np 2 python -m benchmarks.speed.measure MODEL [--rewrite] RESULT.json
    python -m benchmarks.speed.measure MODEL RESULT.json

On several ranks: each rank alone on its share of the batch ("none": no communication), TensorFlow's
``MultiWorkerMirroredStrategy``, Horovod if it can be imported, and ours by data parallelism (with
batch normalisation also by local statistics, as the other ways have them) and by ``mini_time``;
with ``--rewrite`` also with rewritten graphs. In one process: plain TensorFlow and ours on the
whole batch.

The ways take turns of some steps in a random order. The first step of a turn does not count. The
slowest rank determines the time of a step, and the median of steps counts. Horovod runs only in its
own turns: its thread looks for work every millisecond, which would take a third of the other ways'
steps if ranks have one core each.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.speed.models import BATCHES, Array, Step, training_step
from collectives.group import Group
from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of, session_config
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.plan.plan import Plan

__all__ = [
    "Way",
    "horovod_way",
    "medians",
    "plain_way",
    "planned_step",
    "planned_way",
    "times",
]

_WARM_UP, _TURNS, _STEPS = 5, 10, 4

Context = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a step.

    Attributes:
        step: runs the step once.
        turn: context in which the steps of a turn run.
    """

    step: Callable[[], object]
    turn: Context = contextlib.nullcontext


def main(model: str, result: Path, rewrite: bool = False) -> None:
    """Measure all ways; every rank calls. ``rewrite`` adds our step with rewritten graphs."""
    tensoropt.enable_graph_mode()
    tensoropt.init(allow_copies=True)
    group = current().group
    batch = BATCHES[model]
    if group.size == 1:
        ways = {
            "plain": plain_way(training_step(model, batch)),
            "one_rank": planned_way(model, "ft")[0],
        }
    else:
        share = batch // group.size
        ways = {"none": plain_way(training_step(model, share))}
        strategy, target, config = multi_worker(group, session_config(current()))
        step = training_step(model, share, strategy=strategy)
        ways["multi_worker"] = plain_way(step, target=target, config=config)
        if importlib.util.find_spec("horovod") is not None:
            ways["horovod"] = horovod_way(model, share)
        ways["data_parallel"] = planned_way(model, "data_parallel")[0]
        if _normalises(model):
            ways["data_parallel_local"] = planned_way(model, "data_parallel", "local")[0]
        ways["mini_time"] = planned_way(model, "ft")[0]
        if rewrite:
            ways["rewrite"] = planned_way(model, "ft", rewrite=True)[0]
    found = medians(group, ways)
    if group.rank == 0:
        result.write_text(json.dumps(found))


def plain_way(
    step: Step, turn: Context = contextlib.nullcontext, target: str = "", config: Any = None
) -> Way:
    """A step in a plain TensorFlow session."""
    config = config or session_config(current())
    session = tf.compat.v1.Session(target, step.graph, config)
    with step.graph.as_default():
        session.run(tf.compat.v1.global_variables_initializer())
    return Way(lambda: session.run(step.train, step.feeds), turn)


def horovod_way(model: str, share: int) -> Way:
    """A step whose gradients Horovod sums; its thread runs only in these steps."""
    import horovod.tensorflow as hvd

    with _horovod_runs():
        return plain_way(training_step(model, share, hvd.DistributedOptimizer), _horovod_runs)


@contextlib.contextmanager
def _horovod_runs() -> Iterator[None]:
    import horovod.tensorflow as hvd

    if hvd.is_initialized():  # also for our transport over Horovod
        yield
        return
    hvd.init()
    try:
        yield
    finally:
        hvd.shutdown()


def _normalises(model: str) -> bool:
    """Whether a model has batch normalisation, which may use local statistics."""
    operations = training_step(model, BATCHES[model]).graph.get_operations()
    return any(operation.type.startswith("FusedBatchNorm") for operation in operations)


def planned_way(
    model: str, algorithm: str, batch_norm: BatchNorm = "global", rewrite: bool = False
) -> tuple[Way, Plan]:
    """A step of the whole batch under a plan, on variables of its own, and the plan."""
    step = training_step(model, BATCHES[model])
    feeds = {given.op.name: value for given, value in step.feeds.items()}
    with step.graph.as_default():
        plan = tensoropt.find_strategy(
            algorithm=algorithm,
            batch_size=BATCHES[model],
            fetches=[step.train],
            batch_norm=batch_norm,
            rewrite=rewrite,
        )
        return Way(planned_step(plan, step.graph, step.train.name, feeds)), plan


def planned_step(
    plan: Plan, script: tf.Graph, train: str, feeds: Mapping[str, Array]
) -> Callable[[], object]:
    """Return a function that runs a step under a plan which takes all ranks.

    Args:
        plan: the plan.
        script: the graph of the step.
        train: name of the training operator.
        feeds: the value of each placeholder operator, by name.
    """
    job = current()
    world, _, agreement = ranks_of(job, plan)
    assert world is not None, "such a plan takes all ranks"
    executor = plan_executor(job, script, plan, world, agreement)
    return partial(executor.run, [], [train], feeds, Draws())


def medians(
    group: Group,
    ways: dict[str, Way],
    warm_up: int = _WARM_UP,
    turns: int = _TURNS,
    steps: int = _STEPS,
) -> dict[str, float]:
    """Milliseconds of a step for each way: the medians of `times`."""
    found = times(group, ways, warm_up, turns, steps)
    return {name: float(np.median(seconds)) * 1e3 for name, seconds in found.items()}


def times(
    group: Group,
    ways: dict[str, Way],
    warm_up: int = _WARM_UP,
    turns: int = _TURNS,
    steps: int = _STEPS,
) -> dict[str, list[float]]:
    """Seconds of each timed step, for each way.

    Args:
        group: the ranks, all of which call.
        ways: the ways to run a step.
        warm_up: number of steps of each way that are not timed.
        turns: number of turns of each way.
        steps: number of timed steps of a turn.
    """
    for way in ways.values():
        with way.turn():
            for _ in range(warm_up):
                way.step()
    found: dict[str, list[float]] = {name: [] for name in ways}
    order, random = list(ways), np.random.default_rng(0)  # the same order on all ranks
    for _ in range(turns):
        random.shuffle(order)
        for name in order:
            way = ways[name]
            with way.turn():
                way.step()
                found[name] += [_seconds(group, way) for _ in range(steps)]
    return found


def _seconds(group: Group, way: Way) -> float:
    """Seconds of one step on the slowest rank."""
    group.barrier()
    started = time.perf_counter()
    way.step()
    own = time.perf_counter() - started
    return float(group.allreduce(np.array([own]), "max")[0])


def multi_worker(group: Group, config: Any) -> tuple[Any, str, Any]:
    """The strategy, and the target and configuration of a session of its workers.

    TensorFlow's collectives average gradients over gRPC. Every rank calls.

    Args:
        group: all ranks, on one machine; each is a worker.
        config: configuration of the session, to which the strategy adds options.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cluster = {"worker": [str(each) for each in group.allgather_object(address)]}
    task = {"type": "worker", "index": group.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    strategy = tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy()
    config = strategy.update_config_proto(config)
    server = tf.distribute.Server(cluster, "worker", group.rank, config=config)
    return strategy, server.target, config


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[-1]), "--rewrite" in sys.argv[2:-1])
