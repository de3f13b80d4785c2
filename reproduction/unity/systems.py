"""Each system's step for a model on some devices of the simulated Summit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reproduction.unity.fused import fuse_activations
from reproduction.unity.models import MODELS, training_step
from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import InfeasibleError
from tensoropt.planner.request import Request
from tensoropt.planner.searches.branch_search import branches_side_by_side
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.planner.searches.joint_search import Searched, search_jointly, searched_alone
from tensoropt.planner.searches.rewritten_graphs import (
    JointLimits,
    RewrittenGraph,
    candidates,
)
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.planner.searches.union import union
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.baselines.nearest import leader_assignments, nearest_option
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable

__all__ = ["CLUSTER", "Found", "find", "request_of"]

CLUSTER = "summit"
EPSILON = 0.01
_COLUMNS = re.compile(r"/(q|k|v|first)/MatMul$")  # products that Megatron-LM splits by columns
_ROWS = re.compile(r"/(mixed|second)/MatMul$")


@dataclass(frozen=True, slots=True)
class Found:
    """Steps of a model in seconds; None if nothing fits a device.

    Attributes:
        data_parallel: variables replicated, the batch split.
        expert: an expert's strategy: tables split by columns and the rest data parallel
            (recommendation models), or Megatron (BERT); None for other models.
        rewritten_first: the graph that is fastest on one device, fused and then parallelized, with
            branches side by side if that is faster.
        jointly: the fastest step over all graphs, with branches side by side if that is faster.
        all_devices: the fastest step over all graphs without branches side by side.
        frontier_points: number of points of the joint frontier.
        graphs: number of graphs whose frontiers were searched.
        substitutions: substitutions of the graph that is fastest on all devices.
        search_seconds: time of the joint search.
    """

    data_parallel: float | None
    expert: float | None
    rewritten_first: float | None
    jointly: float | None
    all_devices: float | None
    frontier_points: int
    graphs: int
    substitutions: tuple[str, ...]
    search_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The steps as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def find(model: str, devices: int, search_seconds: float = 30.0, algorithm: str = "ft") -> Found:
    """The steps of all systems for a model.

    Args:
        model: a name of `MODELS`.
        devices: number of devices of the cluster.
        search_seconds: time after which the search of one graph's frontier ends with its best
            frontier.
        algorithm: "ft" for frontiers, "optcnn" for the fastest strategy of each graph alone.
    """
    request = request_of(model, devices, search_seconds, algorithm)
    limits = JointLimits(searched=3)
    started = time.perf_counter()
    fused = replace(request, graph=fuse_activations(request.graph, request.roots))
    alone, first = _fastest_alone(request, limits)
    searched = list(search_jointly(request, devices, limits=limits))
    same = [each for each in searched if each.request.rewrites == first.rewrites]
    searched.append(searched_alone(fused, devices))
    sequential = searched[-1]
    if first.rewrites:
        sequential = searched_alone(first, devices)
        searched.append(sequential)
    elif same and len(first.graph) == len(request.graph):
        sequential = same[0]
    usable = request.usable_bytes(devices)
    points = [
        point
        for point in union(each.frontier.points for each in searched)
        if point.memory <= usable
    ]
    best = min(points, key=lambda point: point.time, default=None)
    shared = jointly = best.time / 1e9 if best else None
    for each in searched:
        jointly = _side_by_side(each.request, jointly)
    rewritten_first = _side_by_side(alone, _at_least_data_parallel(sequential, usable))
    took = time.perf_counter() - started
    problem = (
        searched[0].problem if len(request.meshes(devices)) == 1 else problem_of(request, devices)
    )
    (parallel,) = data_parallel.solve(problem)
    used = searched[best.frontier].request.rewrites if best else ()
    return Found(
        data_parallel=parallel.time / 1e9 if parallel.memory <= usable else None,
        expert=_expert(model, problem, usable),
        rewritten_first=rewritten_first,
        jointly=jointly,
        all_devices=shared,
        frontier_points=len(union(each.frontier.points for each in searched)),
        graphs=len(searched),
        substitutions=tuple(dict.fromkeys(each.substitution for each in used)),
        search_seconds=took,
    )


def request_of(
    model: str, devices: int, search_seconds: float = 30.0, algorithm: str = "ft"
) -> Request:
    """The request for a model's step on the test bed; see `find` for the arguments."""
    cluster, step = load_cluster(CLUSTER), training_step(MODELS[model], devices)
    return Request(
        step.graph,
        lambda _: cluster,
        devices,
        step.roots,
        step.shapes,
        step.batch_placeholders,
        reads=step.reads,
        algorithm=algorithm,
        epsilon=EPSILON,
        search_seconds=search_seconds,
    )


def _side_by_side(request: Request, best: float | None) -> float | None:
    """The faster of a step and the fastest fitting step with branches of its graph side by side."""
    limit = None if best is None else round(best * 1e9)
    usable = request.usable_bytes(request.devices)
    times = [
        (each.time + search.step_nanoseconds) / 1e9
        for search, each in branches_side_by_side(request, limit).pipelines
        if each.memory <= usable
    ]
    return min([*times, *([] if best is None else [best])], default=None)


def _fastest_alone(request: Request, limits: JointLimits) -> tuple[Request, Request]:
    """The requests for the graph with the least time on one device: as it is, with branches side
    by side, and with fused activations."""
    estimate = StepEstimate(request.cost_model(1))
    known = applicable(substitutions_by_name().values())
    near = candidates(request.graph, request.roots, known, estimate, limits)
    near.append(RewrittenGraph((), request.graph, 0, 0))
    fused = [(each, fuse_activations(each.graph, request.roots)) for each in near]
    chosen, graph = min(fused, key=lambda each: estimate(each[1]))
    rewrites = chosen.rewrites
    return request.of_rewritten(rewrites, chosen.graph), request.of_rewritten(rewrites, graph)


def _at_least_data_parallel(searched: Searched, usable: int) -> float | None:
    """The fastest fitting step of a frontier or of data parallelism; the search of the frontier
    may have ended early."""
    (parallel,) = data_parallel.solve(searched.problem)
    times = [parallel.time / 1e9] if parallel.memory <= usable else []
    found = _fastest(searched, usable)
    return min([*times, *([] if found is None else [found])], default=None)


def _fastest(searched: Searched, usable: int) -> float | None:
    try:
        point = searched.frontier.fastest(usable)
    except InfeasibleError:
        return None
    return int(searched.frontier.time[point]) / 1e9


def _expert(model: str, problem: GraphProblem, usable: int) -> float | None:
    """The fastest fitting strategy whose operators are split as experts do; all other operators
    are free."""
    makers: list[Callable[[GraphProblem], list[Int64Array]]] = []
    if model in ("dlrm", "xdl", "candle_uno"):
        makers = [_tables_split]
    elif model == "bert_large":
        axes = len(problem.mesh.axes)
        makers = [lambda p, n=n: _megatron(p, range(axes - n, axes)) for n in range(3)]  # type: ignore[misc]
    found = [least_time(problem.problem, make(problem)) for make in makers]
    fitting = [int(each.time[0]) for each in found if int(each.memory[0]) <= usable]
    return min(fitting) / 1e9 if fitting else None


def _tables_split(problem: GraphProblem) -> list[Int64Array]:
    """Configurations with lookups split by columns and products data parallel."""
    (parallel,) = data_parallel.solve(problem)

    def wanted(operator: str, type_: str) -> int | None:
        del operator
        return {"GatherV2": 1, "MatMul": 0}.get(type_)

    return _pinned(problem, wanted, parallel.strategy.tolist())


def _pinned(
    problem: GraphProblem, wanted: Callable[[str, str], int | None], instead: list[int]
) -> list[Int64Array]:
    """For each node its configurations; if one of them splits a wanted index over all axes, only
    that one."""
    kept = []
    for node, group in enumerate(problem.choices):
        operator = problem.graph[group.leader]
        index = wanted(operator.name, operator.type)
        if index is None:
            kept.append(np.arange(len(group.options)))
            continue
        assigned = leader_assignments(problem, node)
        row = np.full(assigned.shape[1], index, dtype=np.int8)
        number = nearest_option(assigned, row) if index else instead[node]
        kept.append(np.array([number]))
    return kept


def _megatron(problem: GraphProblem, parts: range) -> list[Int64Array]:
    """Configurations that split the first product of a pair by columns and the second by rows
    over some axes, and the batch over the other axes."""
    kept = []
    for node, group in enumerate(problem.choices):
        index = 1 if _COLUMNS.search(group.leader) else 2 if _ROWS.search(group.leader) else None
        if index is None:
            kept.append(np.arange(len(group.options)))
            continue
        assigned = leader_assignments(problem, node)
        row = np.zeros(assigned.shape[1], dtype=np.int8)
        row[list(parts)] = index
        kept.append(np.array([nearest_option(assigned, row)]))
    return kept
