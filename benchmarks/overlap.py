"""``python -m benchmarks.overlap MODEL``: the share of communication that computation hides.

Steps of a model of `benchmarks.speed` under data parallelism are traced on every rank: once with
collectives that run while the rank computes, once with collectives in which it waits. ``--traces
FOLDER`` instead reads the traces that ``TENSOROPT_TRACE`` wrote for any script. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median

from benchmarks.launcher import run_job
from benchmarks.speed.models import BATCHES, MODELS, training_step
from tensoropt.report.text_table import table
from tensoropt.view.traced import traced_runs

__all__ = ["communication"]

_COLUMNS = ("step_ms", "computation_ms", "communication_ms", "hidden_ms")
_STEPS, _WARM_UP = 30, 6  # traced runs are part of the warm-up


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--traces", type=Path, help="print what these traces say")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--overlap", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        _run(options.models[0], options.run, options.overlap)
        return
    found: dict[str, dict[str, float]] = {}
    if options.traces is not None:
        for run, parts in communication(options.traces).items():
            found[run] = dict(parts)
    for model in options.models:
        for way in ("waiting", "overlapping"):
            found[f"{model}, {way}"] = _traced(model, options.ranks, way == "overlapping")
    columns = list(dict.fromkeys(name for parts in found.values() for name in parts))
    rows = [[run[:60], *(f"{parts[name]:.2f}" for name in columns)] for run, parts in found.items()]
    print(table(["run", *columns], rows, [False] + [True] * len(columns)))
    print(json.dumps(found))


def communication(folder: Path) -> dict[str, dict[str, float]]:
    """The communication in the traces of a folder, by the name of the run.

    Returns:
        Milliseconds of a step, the median over its traced runs and the mean over ranks; and
            ``hidden_share``, the hidden share of communication.

    Raises:
        PlanError: if there is no trace, or a trace is damaged.
    """
    ranks: dict[str, list[dict[str, float]]] = defaultdict(list)
    for of_rank in traced_runs(folder):
        runs: dict[str, list[Mapping[str, float]]] = defaultdict(list)
        for traced in of_rank:
            runs[traced.program].append(traced.times)
        for run, steps in runs.items():
            ranks[run].append({name: median(each[name] for each in steps) for name in _COLUMNS})
    found = {
        run: {name: mean(each[name] for each in of) for name in _COLUMNS}
        for run, of in ranks.items()
    }
    for parts in found.values():
        sent = parts["communication_ms"]
        parts["hidden_share"] = parts["hidden_ms"] / sent if sent else 0.0
    return found


def _traced(model: str, ranks: int, overlap: bool) -> dict[str, float]:
    """The communication of a model's step, with the median time of a step that is not traced."""
    with tempfile.TemporaryDirectory() as folder:
        program = ["-m", "benchmarks.overlap", model, "--run", folder]
        output = run_job([*program, *["--overlap"] * overlap], ranks)
        found = communication(Path(folder))
    # The longest run is the step, not an initializer.
    largest = max(found.values(), key=lambda parts: parts["step_ms"])
    return {**largest, "untraced_step_ms": float(output.split()[-1])}


def _run(model: str, folder: Path, overlap: bool) -> None:
    """On every rank: run some steps and trace the first ones; the first rank prints the median
    time."""
    import tensorflow as tf

    import tensoropt
    from collectives.native.transport import native_transport
    from tensoropt.execution.lowering.draws import Draws
    from tensoropt.execution.runtime.step_trace import StepTrace
    from tensoropt.frontend.job.job import current
    from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of, session_config

    tensoropt.init(allow_copies=True)
    job = current()
    step = training_step(model, BATCHES[model])
    feeds = {given.op.name: value for given, value in step.feeds.items()}
    with step.graph.as_default():
        plan = tensoropt.find_strategy(
            algorithm="data_parallel", batch_size=BATCHES[model], fetches=[step.train]
        )
    transport = native_transport(job.group)
    if transport is None:
        raise SystemExit("benchmarks.overlap compares the native operator on several ranks.")
    transport.overlaps = overlap
    world, group, agreement = ranks_of(job, plan)
    assert world is not None, "such a plan takes all ranks"
    with step.graph.as_default():
        trace = StepTrace(folder, group.rank)
        executor = plan_executor(job, step.graph, plan, world, agreement, trace)
    config: tf.compat.v1.ConfigProto = session_config(job)
    if overlap:  # collectives have a thread beside these
        config.inter_op_parallelism_threads = max(2, config.inter_op_parallelism_threads)
    executor.configure(config)
    draws, times = Draws(), []
    for _ in range(_WARM_UP + _STEPS):
        group.barrier()
        started = time.perf_counter()
        executor.run([], [step.train.name], feeds, draws)
        times.append(max(group.allgather_object(time.perf_counter() - started)))
    if group.rank == 0:
        print(1e3 * median(times[_WARM_UP:]))


if __name__ == "__main__":
    main()
