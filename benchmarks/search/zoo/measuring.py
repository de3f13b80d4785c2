"""One search of a graph of the zoo. The module imports TensorFlow, so it runs in its own
process."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from typing import Any
from unittest.mock import patch

import tensoropt as tf
from benchmarks.search.zoo.catalogue import ZOO
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.frontend.planning.dry_run_peak import dry_run_peak, stage_peak
from tensoropt.frontend.planning.training_step import imported_step
from tensoropt.garbage import collected_later
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine
from tensoropt.search.outcome import Outcome
from tensoropt.search.solvers import solver

__all__ = ["built", "request_in", "request_of", "request_of_script", "script_of", "search"]

Line = dict[str, Any]
_SOLVERS = ("ft_ldp", "simplify_first", "branch_and_bound")
"""The solvers that `tensoropt.search.find` tries."""


def request_of(name: str, depth: int | None, cluster: Cluster, devices: int) -> Request:
    """The request of `find_strategy` for a graph with default options; nothing is trained.

    Args:
        name: name of a graph of `ZOO`.
        depth: number of layers or repeated parts; None for the real size.
        cluster: the cluster.
        devices: number of devices of the cluster.
    """
    return request_in(*script_of(name, depth), cluster, devices)


def script_of(name: str, depth: int | None) -> tuple[tf.Graph, int]:
    """A graph of `ZOO` as a script builds it, and its batch."""
    entry = ZOO[name]
    build = getattr(import_module(f"benchmarks.search.zoo.{entry.family}"), name)
    own = entry.depth if depth is None else depth
    return built(lambda: build(own)), entry.batch


def request_of_script(
    build: Callable[[], object], batch: int, cluster: Cluster, devices: int
) -> Request:
    """The request for a graph that ``build`` builds in the default graph, with ``batch`` fed
    examples."""
    return request_in(built(build), batch, cluster, devices)


def built(build: Callable[[], object]) -> tf.Graph:
    """A script's graph, which ``build`` builds in the default graph."""
    script = tf.Graph()
    with script.as_default():
        build()
    return script


def request_in(script: tf.Graph, batch: int, cluster: Cluster, devices: int) -> Request:
    """The request for a script's graph."""
    with script.as_default():
        fed, batched = fed_shapes(script, batch, None)
        roots = training_roots(script, None)
        graph = imported_step(script, roots, fed)
        reads = backward_reads(script, graph)
    shapes = {operator.name: fed[operator.name] for operator in graph if operator.is_placeholder}
    loaded = batched & {operator.name for operator in graph}
    step = ScriptStep(script, roots, shapes, StepOptions(loaded, 1), graph=graph)
    return Request(
        graph=graph,
        cluster_at=lambda _: cluster,
        devices=devices,
        roots=tuple(roots),
        shapes=shapes,
        batch_placeholders=loaded,
        reads=reads,
        dry_run_peak=dry_run_peak(step),
        stage_peak=stage_peak(step),
    )


@collected_later()  # like `find_strategy`
def search(
    name: str,
    depth: int | None,
    cluster: str,
    devices: int,
    timeout: float,
    limits: SearchLimits = DEFAULT_LIMITS,
) -> None:
    """Print the sizes of a graph's problem and the results of its search as lines of JSON.

    The process ends by SIGPROF if building the problem and searching it take more than ``timeout``
    CPU seconds.
    """
    request = request_of(name, depth, load_cluster(cluster), devices)
    _say(operators=len(request.graph))
    load_kernels()
    signal.setitimer(signal.ITIMER_PROF, timeout)
    cpu = time.process_time()
    meshes = request.meshes(devices)
    if len(meshes) > 1:  # like `search_frontier`, without a time limit
        _, frontier = coarse_to_fine(
            lambda mesh: problem_of(request, devices, mesh), meshes, limits=limits
        )
    else:
        whole = problem_of(request, devices)
        nodes, edges = whole.problem.nodes, whole.problem.edges
        _say(
            build_cpu_seconds=round(time.process_time() - cpu, 2),
            nodes=len(nodes),
            configurations=sum(node.configurations for node in nodes),
            edges=len(edges),
            cells=sum(edge.time.size for edge in edges),
        )
        with _routed():
            frontier = solver("ft")(whole, request.epsilon, limits).found
    spent = time.process_time() - cpu
    signal.setitimer(signal.ITIMER_PROF, 0)
    _say(cpu_seconds=round(spent, 2), points=len(frontier), within=frontier.within)


def _say(**known: Any) -> None:
    print(json.dumps(known), flush=True)


@contextmanager
def _routed() -> Iterator[None]:
    """Print the solvers that `tensoropt.search.find` tries, as they start."""
    route: list[str] = []
    routing = import_module("tensoropt.search.find")

    def told(name: str) -> Callable[..., Outcome]:
        solve: Callable[..., Outcome] = getattr(routing, name)

        @wraps(solve)
        def solved(*arguments: Any, **options: Any) -> Outcome:
            route.append(name)
            _say(route=route)
            outcome = solve(*arguments, **options)
            if outcome.is_too_large:
                route[-1] += " (too large)"
                _say(route=route)
            return outcome

        return solved

    with ExitStack() as stack:
        for name in _SOLVERS:
            stack.enter_context(patch.object(routing, name, told(name)))
        yield
