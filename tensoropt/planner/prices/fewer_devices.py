"""The predicted times of a step on fewer devices, with which a plan is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tensoropt.errors import LayoutError
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.kinds import kinds_of
from tensoropt.parallel.configuration import Configuration, fitted
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.transformations.microbatches.parts import graph_of_one

__all__ = ["fewer_devices"]

_TENSORS = 4
"""An upper bound of a step's memory, as a multiple of all outputs of its graph: values, gradients
and copies. If the bound fits, the peak is not estimated."""

Times = tuple[tuple[int, int | None], ...]


def fewer_devices(request: Request, problem: GraphProblem | None, failures: list[str]) -> Times:
    """Return the times of data parallelism on 1, 2, 4, ... devices, fewer than the request's.

    A time is in nanoseconds, predicted like that of a plan's step (`step_time`); it is None if the
    estimated peak exceeds the memory limit. No search is made: operators are split as on all
    devices. A number of devices is left out if the cluster does not offer it, or if it has no
    measured costs while the request has.

    Args:
        request: the step, on all devices.
        problem: the problem of the step on all devices. Without it, only one device is predicted.
        failures: the notes of the plan. A failed prediction adds one.
    """
    without: Times = ()
    look = partial(_times, request, problem)
    return attempt("fewer devices", look, without, failures)


def _times(request: Request, problem: GraphProblem | None) -> Times:
    """Return the result of `fewer_devices`."""
    graph, split = request.graph, dict[str, Configuration]()
    if problem is not None:
        (point,) = data_parallel.solve(problem)
        graph, split = problem.graph, problem.configurations(point.strategy.tolist())
    elif request.cut is not None:
        graph = graph_of_one(request.cut)
    counts = [1 << k for k in range(request.devices.bit_length()) if 1 << k < request.devices]
    return tuple(_times_at(request, graph, split, counts if problem is not None else counts[:1]))


def _times_at(
    request: Request, graph: Graph, split: Mapping[str, Configuration], counts: Sequence[int]
) -> Iterator[tuple[int, int | None]]:
    """Yield each of the counts of devices with its time."""
    measured = request.profile_at(request.devices) is not None
    derivations = kinds_of(graph).derivations
    most = _TENSORS * sum(
        operator.value_spec(number).bytes
        for operator in graph
        for number in range(len(operator.outputs))
    )
    for devices in counts:
        try:
            cost = replace(request, devices=devices).cost_model(devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        if (request.profile_at(devices) is not None) != measured:
            continue
        configurations = {
            name: fitted(_spread(split.get(name), cost.mesh), derivation, cost.mesh)
            for name, derivation in derivations.items()
        }
        strategy = Strategy(graph, cost.mesh, configurations, request.batch_placeholders)
        steps = ReshardSteps(cost.mesh, cost.collective_nanoseconds)
        limit = request.limit_bytes(devices)
        fits = most <= limit
        if not fits and can_be_estimated(request):
            fits = estimated_bytes(request, strategy, steps) <= limit
        time = step_time(strategy, cost, steps, request.reads, request.repeats).total
        yield devices, time if fits else None


def _spread(configuration: Configuration | None, mesh: Mesh) -> Configuration:
    """Return a configuration that splits the first split index over all axes of a mesh."""
    splits = () if configuration is None else configuration.splits
    first = next((n for n, axes in enumerate(splits) if axes), None)
    all_axes = tuple(range(len(mesh.axes)))
    return Configuration(tuple(all_axes if n == first else () for n in range(len(splits))))
