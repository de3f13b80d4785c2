"""One task in a process of its own: ``python -m benchmarks.paper.worker TASK RESULT``, the task as
`Task.to_json` has it."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.paper.breakdown import breakdown
from benchmarks.paper.models import training_step
from benchmarks.paper.reuse import KeptCopies
from benchmarks.paper.tasks import Task
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.solvers import solver
from tensoropt.search.watch import Watch

__all__ = ["computed"]

# Of a frontier's points, those whose reuse of tensors is looked at.
_MOST_LOOKED_AT = 200
# CPU seconds after which a search ends with what it has.
_PATIENCE_SECONDS = 90.0


def computed(task: Task) -> dict[str, Any]:
    """What a solver finds, as JSON values: see `benchmarks.paper.results.Result`."""
    step = training_step(task.model)
    cluster = load_cluster(task.cluster)
    mesh = cluster.mesh(task.devices)
    cost = (KeptCopies if task.reuse else ClusterCostModel)(cluster, mesh)
    space = Space(reuse=task.reuse, sharded_storage=task.sharded_storage)
    begun, cpu = time.perf_counter(), time.process_time()
    annotated = AnnotatedGraph.of(
        step.graph, mesh, cost, step.batch_placeholders, step.reads, space
    )
    whole = graph_problem(annotated)
    with Watch():
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE_SECONDS)
        frontier = solver(task.algorithm)(whole).found
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    parts = breakdown(whole, annotated, cost, frontier.strategies)
    return {
        **task.to_json(),
        "parameters_gb": step.parameters_gb,
        "operators": len(step.graph),
        "configurations": sum(node.configurations for node in whole.problem.nodes),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "exact": frontier.exact,
        "within": frontier.within,
        "device_memory_bytes": cluster.device.memory_bytes,
        "memory_bytes": frontier.memory.tolist(),
        "nanoseconds": frontier.time.tolist(),
        "computation_nanoseconds": parts.computation.tolist(),
        "variables_nanoseconds": parts.variables.tolist(),
        "tensors_nanoseconds": parts.tensors.tolist(),
        "kept": _kept(whole, frontier),
    }


def _kept(whole: GraphProblem, frontier: Frontier) -> dict[str, list[int]]:
    """Which copies of resharded tensors are kept, at points evenly spread over the frontier.

    Returns:
        Numbers of the points, and for every point how many operators keep what.
    """
    count = min(len(frontier), _MOST_LOOKED_AT)
    places = np.unique(np.linspace(0, len(frontier) - 1, count).astype(np.int64)).tolist()
    found: dict[str, list[int]] = {"point": places}
    for number, place in enumerate(places):
        chosen = whole.configurations(frontier.strategies[place].tolist())
        for kept, operators in Counter(each.kept for each in chosen.values()).items():
            found.setdefault(kept, [0] * len(places))[number] = operators
    return found


def _enough(number: int, frame: FrameType | None) -> None:
    """What a search that is interrupted ends by, with the best that it knows."""
    del number, frame
    raise KeyboardInterrupt


def main() -> None:
    """Compute what the command line asks for and write it."""
    signal.signal(signal.SIGPROF, _enough)
    task, result = sys.argv[1:]
    try:
        values = computed(Task(**json.loads(task)))
    except KeyboardInterrupt:
        sys.exit(f"knew no strategy after {_PATIENCE_SECONDS:g} s of CPU")
    Path(result).write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main()
