"""Times the steps of one model in several ways; the first rank writes the times to a file.

    mpirun -np 2 python -m benchmarks.speed.measure MODEL RESULT.json [--rewrite]
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
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.speed.models import BATCHES, Step, training_step
from benchmarks.speed.multi_worker import multi_worker
from collectives.group import Group
from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of, session_config
from tensoropt.graph.batch_norm import BatchNorm

__all__ = ["Way", "medians"]

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
        ways = {"plain": _plain(training_step(model, batch)), "one_rank": _ours(model, "ft")}
    else:
        share = batch // group.size
        ways = {"none": _plain(training_step(model, share))}
        strategy, target, config = multi_worker(group, session_config(current()))
        step = training_step(model, share, strategy=strategy)
        ways["multi_worker"] = _plain(step, target=target, config=config)
        if importlib.util.find_spec("horovod") is not None:
            ways["horovod"] = _horovod(model, share)
        ways["data_parallel"] = _ours(model, "data_parallel")
        if _normalises(model):
            ways["data_parallel_local"] = _ours(model, "data_parallel", "local")
        ways["mini_time"] = _ours(model, "ft")
        if rewrite:
            ways["rewrite"] = _ours(model, "ft", rewrite=True)
    found = medians(group, ways)
    if group.rank == 0:
        result.write_text(json.dumps(found))


def _plain(
    step: Step, turn: Context = contextlib.nullcontext, target: str = "", config: Any = None
) -> Way:
    """A step in a plain TensorFlow session."""
    config = config or session_config(current())
    session = tf.compat.v1.Session(target, step.graph, config)
    with step.graph.as_default():
        session.run(tf.compat.v1.global_variables_initializer())
    return Way(lambda: session.run(step.train, step.feeds), turn)


def _horovod(model: str, share: int) -> Way:
    import horovod.tensorflow as hvd

    with _horovod_runs():
        return _plain(training_step(model, share, hvd.DistributedOptimizer), _horovod_runs)


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


def _ours(
    model: str, algorithm: str, batch_norm: BatchNorm = "global", rewrite: bool = False
) -> Way:
    """A step of the whole batch under a plan, on variables of its own."""
    job, step = current(), training_step(model, BATCHES[model])
    feeds = {given.op.name: value for given, value in step.feeds.items()}
    with step.graph.as_default():
        plan = tensoropt.find_strategy(
            algorithm=algorithm,
            batch_size=BATCHES[model],
            fetches=[step.train],
            batch_norm=batch_norm,
            rewrite=rewrite,
        )
        world, _, agreement = ranks_of(job, plan)
        assert world is not None, "such a plan takes all ranks"
        executor = plan_executor(job, step.graph, plan, world, agreement)
    draws = Draws()
    return Way(lambda: executor.run([], [step.train.name], feeds, draws))


def medians(group: Group, ways: dict[str, Way]) -> dict[str, float]:
    """Milliseconds of a step for each way."""
    for way in ways.values():
        with way.turn():
            for _ in range(_WARM_UP):
                way.step()
    times: dict[str, list[float]] = {name: [] for name in ways}
    order, random = list(ways), np.random.default_rng(0)  # the same order on all ranks
    for _ in range(_TURNS):
        random.shuffle(order)
        for name in order:
            way = ways[name]
            with way.turn():
                way.step()
                times[name] += [_seconds(group, way) for _ in range(_STEPS)]
    return {name: float(np.median(found)) * 1e3 for name, found in times.items()}


def _seconds(group: Group, way: Way) -> float:
    """Seconds of one step on the slowest rank."""
    group.barrier()
    started = time.perf_counter()
    way.step()
    own = time.perf_counter() - started
    return float(group.allreduce(np.array([own]), "max")[0])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "--rewrite" in sys.argv[3:])
