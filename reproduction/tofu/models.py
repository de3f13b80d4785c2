"""Tofu's recursion on the two models whose search Tofu's paper times (its Table 1), for 8 workers.

The models are the largest of their kind in section 7.1, with Tofu's batches (section 7.2):
WResNet-152-10 on images of 224, and RNN-10-8K with 20 steps. Weights, gradients and history match
its Table 2. For the RNN they match if the first layer has a narrow input: a layer of 8,192 on top
of an equally wide one has 6.0 GB, and ten layers have 57.0 GB. The 8 devices are those of one
machine on PCI Express.

The clock begins with the graph in memory and kernels loaded, and ends with the strategy, so it
includes building the problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.training_step import gradient_descent_step
from examples.models import Model, lstm_language_model, wide_resnet
from reproduction.baselines.tofu_recursive import solve
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.planner.kernels import load_kernels
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import WHOLE_OPERANDS
from tensoropt.problem.from_graph import graph_problem

__all__ = ["TOFU_MODELS", "TofuModel", "search"]

CLUSTER = "8-v100-pcie"
DEVICES = 8
# Weights, gradients and a history of the same size (section 7.1), in float32.
BYTES_PER_PARAMETER = 12


@dataclass(frozen=True, slots=True)
class TofuModel:
    """One column of Tofu's Table 1.

    Attributes:
        title: the name in the paper.
        build: makes the forward graph in the default graph.
        batch_size: the batch with which Tofu trains the model.
        weights_gb: the size in its Table 2, in 2**30 bytes.
        paper_seconds: the time in its Table 1.
    """

    title: str
    build: Callable[[], Model]
    batch_size: int
    weights_gb: float
    paper_seconds: float


TOFU_MODELS = {
    "wresnet_152": TofuModel(
        "WResNet-152-10", lambda: wide_resnet(depth=152, width=10), 8, 65.1, 8.3
    ),
    "rnn_10": TofuModel(
        "RNN-10-8K",
        lambda: lstm_language_model(
            hidden=8192, layers=10, steps=20, vocabulary=1024, embedding=128
        ),
        128,
        57.0,
        66.6,
    ),
}


def search(name: str) -> dict[str, Any]:
    """Partition one of `TOFU_MODELS` in this process."""
    model = TOFU_MODELS[name]
    step = gradient_descent_step(model.build, model.batch_size)
    cluster = load_cluster(CLUSTER)
    mesh = cluster.mesh(DEVICES)
    loaded_seconds = load_kernels()
    begun, cpu = time.perf_counter(), time.process_time()
    cost = ClusterCostModel(cluster, mesh)
    problem = graph_problem(
        AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, space=WHOLE_OPERANDS)
    )
    built = time.perf_counter() - begun
    found = solve(problem)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "model": name,
        "title": model.title,
        "devices": DEVICES,
        "operators": len(step.graph),
        "weights_gb": round(BYTES_PER_PARAMETER * step.parameters / 2**30, 1),
        "paper_weights_gb": model.weights_gb,
        "kernels_seconds": round(loaded_seconds, 3),
        "build_seconds": round(built, 3),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "exact": found.exact,
        "seconds_per_step": round(int(found.time[0]) / 1e9, 4),
        "memory_gb": round(int(found.memory[0]) / 2**30, 3),
        "paper_seconds": model.paper_seconds,
    }
