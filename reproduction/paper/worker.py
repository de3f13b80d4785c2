"""Tasks of one model: ``python -m reproduction.paper.worker FOLDER TASK...``.

The tasks are texts of `Task.to_json`. Each task writes a file NAME.json in the folder, or
NAME.failed.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.training_step import TrainingStep
from reproduction.baselines import ft_elimination, mesh_tensorflow
from reproduction.paper.breakdown import breakdown
from reproduction.paper.layers import kept_by_layers
from reproduction.paper.memory_models import KeptCopies, KeptOutputs
from reproduction.paper.models import training_step
from reproduction.paper.tasks import NO_STRATEGY, Task
from reproduction.paper.testbed import PaperCosts, paper_cluster
from tensoropt.errors import SearchSizeError
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph
from tensoropt.planner.kernels import load_kernels
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.solvers import solver
from tensoropt.search.watch import Watch

__all__ = ["computed"]

# Number of a frontier's points whose reuse of tensors is examined.
_MOST_LOOKED_AT = 200
# CPU seconds after which a search ends with its best frontier so far.
_PATIENCE_SECONDS = 90.0


def computed(task: Task, step: TrainingStep) -> dict[str, Any]:
    """The result of a task as JSON values; see `reproduction.paper.results.Result`.

    ``step`` is the training step of the task's model.
    """
    cluster = paper_cluster(task.cluster, task.links)
    mesh = cluster.mesh(task.devices)
    cost, reads = PaperCosts(cluster, mesh), step.reads
    if task.reuse:
        cost = KeptCopies(cluster, mesh)
    elif task.layers:
        cost, reads = KeptOutputs(cluster, mesh), _outputs(step.graph)
    space = Space(reuse=task.reuse, sharded_storage=task.sharded_storage, partial_operands=False)
    begun, cpu = time.perf_counter(), time.process_time()
    annotated = AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, reads, space)
    whole = graph_problem(annotated)
    with Watch():
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE_SECONDS)
        frontier = _found(task.algorithm, whole)
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
        "device_memory_bytes": int(cluster.device.memory_bytes / cluster.safety_factor),
        "memory_bytes": frontier.memory.tolist(),
        "nanoseconds": frontier.time.tolist(),
        "computation_nanoseconds": parts.computation.tolist(),
        "variables_nanoseconds": parts.variables.tolist(),
        "tensors_nanoseconds": parts.tensors.tolist(),
        "made_again": _made_again(whole, frontier),
    }


def _found(algorithm: str, whole: GraphProblem) -> Frontier:
    """The frontier of a solver by its name, or of a solver that only the paper asks for."""
    if algorithm == "ft_ldp":
        return frontier_tracking(whole.problem, bounds=False)
    if algorithm == "ft_elimination":
        return ft_elimination.solve(whole.problem)
    if algorithm == "mesh_tensorflow_free":
        return mesh_tensorflow.solve(whole, free=True)
    return solver(algorithm)(whole).found


def _outputs(graph: Graph) -> BackwardReads:
    """The reads of the outputs that layers keep, in the layout of their operators."""
    kept = kept_by_layers(graph)
    return BackwardReads(
        {}, {op.name: tuple(range(len(op.outputs))) for op in graph if op.name in kept}
    )


def _made_again(whole: GraphProblem, frontier: Frontier) -> dict[str, list[int]]:
    """The price of tensor reuse, at points spread evenly over the frontier.

    Each point is priced anew with both copies of every tensor kept and all splits as they are.

    Returns:
        The numbers of the points ("point"), the bytes of a device that dropped copies save
            ("dropped_bytes"), and the time of making them again ("nanoseconds").
    """
    count = min(len(frontier), _MOST_LOOKED_AT)
    places = np.unique(np.linspace(0, len(frontier) - 1, count).astype(np.int64))
    splits = np.array([len(group.options) // len(group.options.kept) for group in whole.choices])
    assert all(group.options.kept[0] == "both" for group in whole.choices), "the first way"
    memory, time = whole.problem.costs(frontier.strategies[places] % splits)
    return {
        "point": places.tolist(),
        "dropped_bytes": (memory - frontier.memory[places]).tolist(),
        "nanoseconds": (frontier.time[places] - time).tolist(),
    }


def _enough(number: int, frame: FrameType | None) -> None:
    """Interrupts a search, which then returns its best frontier so far."""
    del number, frame
    raise KeyboardInterrupt


def main() -> None:
    """Compute the tasks of the command line and write their results."""
    signal.signal(signal.SIGPROF, _enough)
    folder = Path(sys.argv[1])
    tasks = [Task(**json.loads(text)) for text in sys.argv[2:]]
    load_kernels()  # in a fresh checkout their compilation would end a search by its time
    step = training_step(tasks[0].model)
    for task in tasks:
        unfinished = folder / "unfinished"
        try:
            values = computed(task, step)
        except KeyboardInterrupt:
            told = f"{NO_STRATEGY} after {_PATIENCE_SECONDS:g} s of CPU"
            (folder / f"{task.name}.failed").write_text(told, encoding="utf-8")
        except SearchSizeError:
            told = f"{NO_STRATEGY}, a table had too many points"
            (folder / f"{task.name}.failed").write_text(told, encoding="utf-8")
        else:
            unfinished.write_text(json.dumps(values), encoding="utf-8")
            unfinished.replace(folder / f"{task.name}.json")


if __name__ == "__main__":
    main()
