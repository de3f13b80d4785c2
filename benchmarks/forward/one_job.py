"""Figures of a rank: ``python -m benchmarks.forward.one_job MODEL WAY BATCH RANKS FOLDER``.

The way is "plain" for Keras alone, "share" for Keras alone with the threads and the part of a batch
that one of the ranks has, or "ours". The figures are written to a file in the folder.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.around_the_step.ways import set_threads
from benchmarks.forward.workloads import WORKLOADS
from tensoropt.execution.runtime.program import Program
from tensoropt.frontend.job.job import current
from tensoropt.frontend.keras_models import own_batches
from tensoropt.graph.operator import TensorName
from tensoropt.plan import Plan

_REPEATS = 3
_FEWEST_BATCHES = 8


def main() -> None:
    """Run, and write the figures."""
    name, way, batch, ranks, folder = sys.argv[1:]
    workload = WORKLOADS[name]
    if int(batch):
        batches = max(_FEWEST_BATCHES, workload.batch * workload.batches // int(batch))
        workload = replace(workload, batch=int(batch), batches=batches)
    if way == "share":
        workload = replace(workload, batch=workload.batch // int(ranks))
        set_threads(way, int(ranks))
    keras.utils.set_random_seed(1)
    model = workload.model()
    plans, own, peaks, rank = list[Plan](), list[int](), list[tuple[int, bool]](), 0
    if way == "ours":
        _keep_plans(plans)
        _keep_own_peaks(own)
        _measure_peaks(peaks)
        tensoropt.parallelize(model)
        rank = tensoropt.rank()
    model.compile("sgd", workload.loss, metrics=[workload.metric])
    count = workload.batch * workload.batches
    inputs, targets = workload.inputs(count), workload.targets(count)

    def evaluate(examples: int) -> Any:
        x = [part[:examples] for part in inputs]
        return model.evaluate(x, targets[:examples], workload.batch, verbose=0)

    def predict(examples: int) -> Any:
        x = [part[:examples] for part in inputs]
        return float(np.abs(model.predict(x, workload.batch, verbose=0)).mean())

    figures = {}
    for call in (evaluate, predict):
        plans.clear()
        own.clear()
        peaks.clear()
        figures[call.__name__] = _seconds(call, workload.batch, count) | {
            "planned_mib": _planned_bytes(plans, own, any(is_own for _, is_own in peaks)) / 2**20,
            "peak_mib": max((peak for peak, _ in peaks[1:]), default=0) / 2**20,
        }
    Path(folder, f"rank-{rank}.json").write_text(json.dumps(figures))


def _seconds(call: Callable[[int], Any], batch: int, count: int) -> dict[str, Any]:
    """CPU seconds of this process in runs of one batch and of all batches; the last result."""
    call(batch)
    call(2 * batch)
    short, long = list[float](), list[float]()
    for _ in range(_REPEATS):
        for examples, seconds in ((batch, short), (count, long)):
            before = _cpu_seconds()
            result = call(examples)
            seconds.append(_cpu_seconds() - before)
    # Other programs on the machine only add to CPU seconds.
    short_seconds, long_seconds = min(short), min(long)
    each = (long_seconds - short_seconds) / (count // batch - 1)
    fixed = short_seconds - each
    return {"all": long_seconds, "fixed": fixed, "batch": each, "result": result}


def _cpu_seconds() -> float:
    """Seconds of a processor that all threads of this process have had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _keep_plans(plans: list[Plan]) -> None:
    """Add each plan that this process gets to a list."""
    made = Plan.from_json.__func__  # type: ignore[attr-defined]

    def from_json(kind: type[Plan], *args: Any, **kwargs: Any) -> Plan:
        plans.append(made(kind, *args, **kwargs))
        return plans[-1]

    Plan.from_json = classmethod(from_json)  # type: ignore[method-assign, assignment]


def _keep_own_peaks(own: list[int]) -> None:
    """Add each predicted peak of whole batches on this process to a list."""
    predict = own_batches.own_batch_bytes

    def predicted(*args: Any) -> int:
        own.append(predict(*args))
        return own[-1]

    own_batches.own_batch_bytes = predicted  # type: ignore[assignment]


def _planned_bytes(plans: list[Plan], own: list[int], are_own: bool) -> int:
    """The predicted peak: of a share of a batch, or of the whole batches that ranks run."""
    of_shares = [plan.peak_bytes or plan.memory_bytes for plan in plans]
    return max(own if are_own else of_shares, default=0)


def _measure_peaks(peaks: list[tuple[int, bool]]) -> None:
    """Add the peak memory of each run with fed values to a list, in bytes, and whether the rank had
    a batch of its own.

    The peak has the variables of the run's graph on this rank, and the memory beyond that in use
    before the run.
    """
    run = Program.run

    def measured(program: Program, feeds: Any, *args: Any) -> Any:
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        result = run(program, feeds, *args)
        if feeds:
            peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
            peaks.append((peak - before + _variable_bytes(program), program.is_own))
        return result

    Program.run = measured  # type: ignore[method-assign, assignment]


def _variable_bytes(program: Program) -> int:
    """Bytes of the shards of a program's variables on this rank."""
    job = current()
    assert job.script is not None, "a graph runs"
    executor = job.graphs[job.script].executor
    strategy, mesh = executor.strategy(program.graph), executor.world.mesh
    total = 0
    for operator in program.graph:
        if operator.is_variable:
            spec = operator.value_spec(0)
            layout = strategy.output_slot(TensorName(operator.name, 0)).forward
            total += layout.local_elements(spec.shape, mesh) * tf.as_dtype(spec.dtype).size
    return total


if __name__ == "__main__":
    main()
