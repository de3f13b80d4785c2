"""One search of a training step in this process, and searches in processes of their own.

Seconds are those of building the problem and searching it, with the graph in memory and compiled
kernels loaded. CPU seconds are those of all threads. On a machine with other work, CPU seconds say
more than seconds.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.kernels import load_kernels
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PAPER, Space
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine
from tensoropt.search.multilevel.refinement import Refinement

if TYPE_CHECKING:
    from benchmarks.training_step import TrainingStep  # imports TensorFlow

__all__ = ["ROOT", "Line", "in_process", "problem_builder", "proven", "searched"]

ROOT = Path(__file__).resolve().parent.parent.parent
Line = dict[str, Any]


def problem_builder(
    step: TrainingStep, cluster: Cluster, space: Space = PAPER
) -> Callable[[Mesh], GraphProblem]:
    """A function that builds the problem of a step on a mesh of the cluster.

    Args:
        step: the training step.
        cluster: prices operators and collectives.
        space: the search space; by default a weight is stored as it is read.
    """

    def build(mesh: Mesh) -> GraphProblem:
        cost = ClusterCostModel(cluster, mesh)
        loaded = step.batch_placeholders
        return graph_problem(AnnotatedGraph.of(step.graph, mesh, cost, loaded, space=space))

    return build


def searched(
    build: Callable[[Mesh], GraphProblem],
    meshes: Sequence[Refinement] | Mesh,
    epsilon: float = 0.0,
    bounds: bool = True,
) -> Line:
    """Build a problem, search it, and describe the search and its frontier.

    Args:
        build: builds the problem of a mesh.
        meshes: the mesh, or coarse meshes and the mesh that are searched one after another.
        epsilon: the gap that is asked for; 0 for an exact search.
        bounds: whether bounds leave out configurations before eliminations.
    """
    kernel_seconds = load_kernels()
    start, cpu_start = time.perf_counter(), time.process_time()
    if isinstance(meshes, Mesh):
        problem = build(meshes)
        build_seconds = time.process_time() - cpu_start
        frontier = frontier_tracking(problem.problem, epsilon=epsilon, bounds=bounds)
    else:
        build_seconds = 0.0
        problem, frontier = coarse_to_fine(build, meshes, epsilon)
    configurations = [node.configurations for node in problem.problem.nodes]
    return {
        "mesh": str(problem.mesh),
        "nodes": len(configurations),
        "edges": len(problem.problem.edges),
        "configurations": sum(configurations),
        "kernel_seconds": round(kernel_seconds, 3),
        "build_cpu_seconds": round(build_seconds, 3),
        "seconds": round(time.perf_counter() - start, 3),
        "cpu_seconds": round(time.process_time() - cpu_start, 3),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
        "heuristic_eliminations": frontier.eliminations["heuristic"],
        "memory_gb": [round(int(frontier.memory[end]) / 2**30, 3) for end in (0, -1)],
        "seconds_per_step": [round(int(frontier.time[end]) / 1e9, 4) for end in (0, -1)],
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def in_process(
    module: str, arguments: Sequence[str], timeout: float, prefix: Sequence[str] = ()
) -> Line:
    """Run ``module --here`` in a process of its own and return the JSON object of its last line.

    If the process takes more than ``timeout`` seconds or fails, the object has the reason as
    "error". ``prefix`` is a command that starts the process, such as taskset.
    """
    command = [*prefix, sys.executable, "-m", module, *arguments, "--here"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, text=True, timeout=timeout, stdout=subprocess.PIPE, check=True
        )
    except subprocess.TimeoutExpired:
        return {"arguments": list(arguments), "error": f"more than {timeout:g} s"}
    except subprocess.CalledProcessError as error:  # the process has printed the reason
        return {"arguments": list(arguments), "error": f"ended with status {error.returncode}"}
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line


def proven(line: Line) -> str:
    """The gap that a search has proven, in words."""
    if line["exact"]:
        return "exact"
    return "within unknown" if line["within"] is None else f"within {100 * line['within']:.3g} %"
