"""Kernels of planning, compiled before a search needs them: where the package is built, or by hand.

    python -m tensoropt.planner.kernels

Numba compiles a kernel where it is first called, and keeps it on disk. Here all are called, for
what is as small as reaches them: a step of a few layers, and a problem of made-up costs.
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

_LAYERS = 14  # more operators than blocks, so that some are grouped
_WIDTH = 96
_DEVICES = 4
_SLOTS = 60


def load_kernels() -> float:
    """Call every kernel, which loads it, or compiles it where it is not on disk.

    Returns:
        the seconds that took.
    """
    begun = time.perf_counter()
    for calls in _PARTS:
        calls()
    return time.perf_counter() - begun


def _pipeline_of_stages() -> None:
    choose(_request(), "mini_time")


def _bounded_search() -> None:
    """As if the problem were too large to simplify, which takes bounds, and branch and bound."""
    frontier_tracking(_problem(), limits=replace(DEFAULT_LIMITS, simplified_cells=0))


_PARTS = (_pipeline_of_stages, _bounded_search)
"""Of about as much compiled code, little of it in both."""


def _request() -> Request:
    """A pipeline of layers that are skipped, and their gradients."""
    shape = (64, _WIDTH)
    operators: dict[str, Operator] = {}

    def add(name: str, kind: str, *inputs: str, to: tuple[int, ...] = shape, **more: object) -> str:
        specs = tuple(operators[each].outputs[0] for each in inputs)
        made = (TensorSpec(to, "float32"),)
        reads = tuple(TensorName(each, 0) for each in inputs)
        operators[name] = Operator(name, kind, reads, specs, made, {"T": "float32", **more})
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
        made = (TensorSpec((_WIDTH, _WIDTH), "float32"),)
        name = f"g{layer}"
        operators[name] = Operator(name, GRADIENT, inputs, specs, made, gradient=tag)
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
    random = np.random.default_rng(0)
    own = np.arange(_SLOTS)

    def edge(source: int, target: int) -> Edge:
        memory, time = (random.integers(0, most, (_SLOTS, _SLOTS)) for most in (2, 10_000))
        return Edge.of(source, target, own, own, memory, time)

    nodes = tuple(
        Node(str(number), random.integers(0, 1000, _SLOTS), random.integers(0, 10_000, _SLOTS))
        for number in range(4)
    )
    return Problem(nodes, (edge(0, 1), edge(1, 2), edge(0, 2), edge(2, 3)))


def _load(part: int) -> None:
    _PARTS[part]()


def _main() -> None:
    """Both parts at once, as compiling holds the interpreter's lock."""
    begun = time.perf_counter()
    with ProcessPoolExecutor(len(_PARTS), get_context("spawn")) as pool:
        list(pool.map(_load, range(len(_PARTS))))  # raises what they raise
    print(f"the kernels of planning are there after {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    _main()
