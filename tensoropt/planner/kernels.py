"""Compiles the kernels of planning before a search needs them; run when the package is built.

    python -m tensoropt.planner.kernels

Numba compiles a kernel at its first call, and stores it on disk. This module calls all kernels on
small inputs: a step of a few layers, and a problem with random costs.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np

from tensoropt.cost.cluster import load_cluster
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.planner.choose import choose
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.problem.model import Edge, Node, Problem
from tensoropt.search.find import frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.tensor_spec import TensorSpec

__all__ = ["load_kernels"]

_LAYERS = 14  # so that there are more operators than blocks, and some are grouped
_WIDTH = 96
_DEVICES = 4
_SLOTS = 60


def load_kernels() -> float:
    """Call every kernel. This loads it from disk, or compiles it if it is not there.

    Returns:
        The seconds that this has taken.
    """
    begun = time.perf_counter()
    for calls in _PARTS:
        calls()
    return time.perf_counter() - begun


def _pipeline_of_stages() -> None:
    choose(_request(), "mini_time")


def _bounded_search() -> None:
    """Search with bounds, and with branch and bound, as for a problem too large to simplify.

    Its subproblems are small enough to be searched exactly.
    """
    problem = _problem()
    cells = sum(edge.time.size for edge in problem.edges)
    frontier_tracking(problem, limits=replace(DEFAULT_LIMITS, few_cells=cells - 1))


_PARTS = (_pipeline_of_stages, _bounded_search)
"""Two parts that compile different kernels, in about the same time."""


def _request() -> Request:
    """Return the request for a pipeline of layers with skip connections, and their gradients."""
    shape = (64, _WIDTH)
    operators: dict[str, Operator] = {}

    def add(name: str, kind: str, *inputs: str, to: tuple[int, ...] = shape, **more: object) -> str:
        specs = tuple(operators[input_].outputs[0] for input_ in inputs)
        outputs = (TensorSpec(to, "float32"),)
        reads = tuple(TensorName(input_, 0) for input_ in inputs)
        operators[name] = Operator(name, kind, reads, specs, outputs, {"T": "float32", **more})
        return name

    last = add("x", "Placeholder", dtype="float32")
    for layer in range(_LAYERS):
        weights = add(f"w{layer}", "VariableV2", to=(_WIDTH, _WIDTH), dtype="float32")
        read = add(f"w{layer}/read", "Identity", weights, to=(_WIDTH, _WIDTH))
        product = add(f"p{layer}", "MatMul", last, read, transpose_a=False, transpose_b=False)
        last = add(f"y{layer}", "AddV2", last, add(f"r{layer}", "Relu", product))
    y = TensorName(last, 0)
    for layer in range(_LAYERS):
        tag = GradientTag(0, "dense", (y,), TensorName(f"w{layer}", 0), (None,), ())
        inputs, specs = (y,), (TensorSpec(shape, "float32"),)
        outputs = (TensorSpec((_WIDTH, _WIDTH), "float32"),)
        name = f"g{layer}"
        operators[name] = Operator(name, GRADIENT, inputs, specs, outputs, gradient=tag)
    return Request(
        graph=Graph(operators),
        cluster_at=lambda _: load_cluster("2x8-v100"),
        devices=_DEVICES,
        roots=tuple(f"g{layer}" for layer in range(_LAYERS)),
        shapes={"x": shape},
        batch_placeholders=frozenset({"x"}),
        pipeline=PipelineNumbers(stages=2),
    )


def _problem() -> Problem:
    """Return a problem of four nodes with random costs."""
    random = np.random.default_rng(0)
    slots = np.arange(_SLOTS)

    def edge(source: int, target: int) -> Edge:
        memory, time = (random.integers(0, most, (_SLOTS, _SLOTS)) for most in (2, 10_000))
        return Edge.of(source, target, slots, slots, memory, time)

    nodes = tuple(
        Node(str(number), random.integers(0, 1000, _SLOTS), random.integers(0, 10_000, _SLOTS))
        for number in range(4)
    )
    return Problem(nodes, (edge(0, 1), edge(1, 2), edge(0, 2), edge(2, 3)))


def _load(part: int) -> None:
    _PARTS[part]()


def _main() -> None:
    """Load both parts in processes of their own, since compiling holds the interpreter's lock."""
    print("compiling the kernels of planning, once: a minute, or two", flush=True)
    begun = time.perf_counter()
    with ProcessPoolExecutor(len(_PARTS), get_context("spawn")) as pool:
        list(pool.map(_load, range(len(_PARTS))))  # the list raises the errors of the processes
    print(f"the kernels of planning are compiled after {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    _main()
