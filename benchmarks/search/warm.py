"""What a process does once, before searches are timed: it loads compiled kernels from disk.

    python -m benchmarks.search.warm

compiles them where they are not there yet.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.search.steps import cluster_of
from benchmarks.training_step import gradient_descent_step
from examples.models import Model, lstm_language_model
from tensoropt.cost.model import ClusterCostModel
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search import Edge, Node, Problem, frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.supported.supported_frontier import supported_frontier

__all__ = ["load_kernels"]

# Slots of problems that are searched in the two ways of exact search, and of one that is not.
SLOTS = (200, 1100)
NEAR = 700
DEVICES = 4


def load_kernels() -> float:
    """Build and search a small model on few devices, and some made-up problems; returns seconds.

    Nothing of it is of use to other models' searches on other devices but the kernels themselves.
    """
    step = gradient_descent_step(_model, 16)
    begun = time.perf_counter()
    cluster = cluster_of(DEVICES)
    mesh = cluster.mesh(DEVICES)
    cost = ClusterCostModel(cluster, mesh)
    frontier_tracking(
        graph_problem(AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders)).problem
    )
    for slots in SLOTS:
        frontier_tracking(_made_up(slots))
    supported_frontier(_made_up(NEAR), None, 0.001, DEFAULT_LIMITS)
    return time.perf_counter() - begun


def _model() -> Model:
    return lstm_language_model(hidden=64, layers=2, steps=3, vocabulary=128)


def _made_up(slots: int) -> Problem:
    random = np.random.default_rng(slots)
    own = np.arange(slots)

    def edge(source: int, target: int) -> Edge:
        tables = random.integers(0, 2, (slots, slots)), random.integers(0, 10_000, (slots, slots))
        return Edge.of(source, target, own, own, *tables)

    nodes = tuple(
        Node(str(number), random.integers(0, 1000, slots), random.integers(0, 10_000, slots))
        for number in range(4)
    )
    edges = (edge(0, 1), edge(1, 2), edge(0, 2), edge(2, 3))
    return Problem(nodes, edges)


if __name__ == "__main__":
    print(f"the search's kernels are there after {load_kernels():.1f} s")
