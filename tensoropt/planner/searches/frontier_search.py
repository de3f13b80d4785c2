"""The search of a request's frontier on a number of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.request import Request
from tensoropt.planner.searches.shared import search_once
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, ProblemBuilder, graph_problem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.multilevel.coarse_to_fine import Known, coarse_to_fine
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.solvers import solver
from tensoropt.search.tolerances import ROUNDING
from tensoropt.search.watch import Watch, interruptible, keep
from tensoropt.transformations.microbatches.parts import graph_of_one

__all__ = ["least_bytes", "problem_of", "search_frontier", "searched_problem"]

_LEAST_SECONDS = 1.0
"""The time that every search may take, since users do not notice it at the start of a job."""


def search_frontier(
    request: Request, devices: int, known: Known | None = None
) -> tuple[GraphProblem, Frontier]:
    """Return the problem of a request and its frontier, by the request's algorithm.

    If the devices have more axes than can be searched at once, frontier tracking goes from coarse
    meshes to finer ones. When the request's seconds are over, it returns the frontier that it has;
    if it has none yet, it goes on until it has one. If a user interrupts it before that, it returns
    data parallelism. Every frontier has a point that is at least as good as data parallelism.

    Args:
        request: the step.
        devices: the number of devices.
        known: strategies of a similar step, with which a search of several meshes begins.
    """
    return search_once("frontier", request, devices, lambda: _searched(request, devices, known))


def _searched(request: Request, devices: int, known: Known | None) -> tuple[GraphProblem, Frontier]:
    """Return the result of `search_frontier`."""
    meshes = request.meshes(devices)
    if request.algorithm != "ft":
        problem = searched_problem(request, devices)
        return problem, solver(request.algorithm)(problem).found
    if len(meshes) > 1:
        with Watch(seconds=request.search_seconds) as watch:
            problem, frontier = coarse_to_fine(
                lambda mesh: problem_of(request, devices, mesh),
                meshes,
                request.epsilon,
                _limits(request),
                known,
            )
    else:
        problem = problem_of(request, devices)
        worth = _worth(request, problem)
        with Watch(seconds=request.search_seconds, worth=worth) as watch:
            frontier = _track_frontier(problem, request).found
    if not frontier.exact:  # plans are compared with data parallelism
        frontier = joined_frontier(frontier, data_parallel.incumbent(problem))
    return problem, replace(frontier, ended_by=watch.ended_by)


def _worth(request: Request, problem: GraphProblem) -> Callable[[float], float] | None:
    """Return a function from a proven gap to the seconds that a smaller gap is worth.

    A search that closes the gap shortens a step by at most the gap. Steps are at most as long as
    those of data parallelism. The result is None if the number of steps is unknown.
    """
    if request.steps is None:
        return None
    step = int(data_parallel.incumbent(problem).time.min())
    return lambda gap: max(_LEAST_SECONDS, request.worth_seconds(step, gap))


@interruptible
def _track_frontier(problem: GraphProblem, request: Request) -> Outcome:
    """Return the frontier by frontier tracking; if interrupted, at least data parallelism."""
    keep(partial(data_parallel.incumbent, problem), last_resort=True)
    return solver("ft")(problem, request.epsilon, _limits(request))


def _limits(request: Request) -> SearchLimits:
    """Return the limits of a request's search."""
    if request.closes:
        return DEFAULT_LIMITS
    return replace(DEFAULT_LIMITS, closing_gap=DEFAULT_LIMITS.approximate_gap)


def searched_problem(request: Request, devices: int, mesh: Mesh | None = None) -> GraphProblem:
    """Return the problem that a request's algorithm searches.

    Only frontier tracking and brute force search configurations that read partial sums: the
    systems of other papers do not have them.
    """
    if request.algorithm not in ("ft", "brute_force"):
        request = replace(request, space=replace(request.space, partial_operands=False))
    return problem_of(request, devices, mesh)


def problem_of(request: Request, devices: int, mesh: Mesh | None = None) -> GraphProblem:
    """Return the problem of a request on one of its meshes; by default on the last one.

    The problem on the last mesh is built once, since a bound and a search may both need it.
    """
    if mesh is not None:
        return graph_problem(_annotated(request, request.cost_model(devices, mesh)))
    if devices not in request.problems:
        request.problems[devices] = _builder(request, devices).build()
        del request.builders[devices]
    return request.problems[devices]


def _builder(request: Request, devices: int) -> ProblemBuilder:
    """Return the builder of the problem on the last mesh, which a bound and the problem share."""
    if devices not in request.builders:
        annotated = _annotated(request, request.cost_model(devices))
        request.builders[devices] = ProblemBuilder(annotated)
    return request.builders[devices]


def least_bytes(request: Request, devices: int) -> int:
    """Return a lower bound of every strategy's memory, see `ProblemBuilder.least_memory_bytes`.

    If the request keeps fewer tensors, edges have memory, and that bound is far too low: half the
    least memory for BERT-Large, a sixth for a decoder. Then one sweep of message passing bounds the
    sum of nodes and edges. Problems that are searched on several meshes are too large.
    """

    def least() -> int:
        if request.keeps_less and len(request.meshes(devices)) == 1:
            problem = problem_of(request, devices).problem
            if not problem.has_negative:
                bound = WeightedBounds(problem).bounds(0.0, 1.0, 1).least
                return int(bound * (1 - ROUNDING))
        return _builder(request, devices).least_memory_bytes()

    return search_once("least bytes", request, devices, least)


def _annotated(request: Request, cost: ClusterCostModel) -> AnnotatedGraph:
    """Return the request's graph on the devices of a cost model.

    For several microbatches, it is the graph of one: its operators have the microbatch's shapes,
    and run once for every microbatch.
    """
    cut, pins = request.cut, None
    if request.pins.of_operator:
        pins = request.pins.on(cost.mesh, cost.cluster.level_counts(cost.mesh.size))
    return AnnotatedGraph.of(
        request.graph if cut is None else graph_of_one(cut),
        cost.mesh,
        cost,
        request.batch_placeholders,
        request.reads,
        request.space,
        request.repeats,
        fixed=request.fixed,
        pins=pins,
    )
