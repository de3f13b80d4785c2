"""The frontier of a request, on some number of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.request import Request
from tensoropt.planner.searches.shared import search_once
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem, least_memory_bytes
from tensoropt.search.baselines import data_parallel
from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.solvers import solver
from tensoropt.search.watch import Watch, interruptible, keep
from tensoropt.transformations.microbatches.parts import graph_of_one

__all__ = ["least_bytes", "problem_of", "search_frontier", "searched_problem"]

# The smallest gap that is asked for on meshes that take axes together.
_FINEST = 0.001
_LEAST_SECONDS = 1.0
"""Of a search: less is not noticed at the start of a job, whatever its steps take."""


def search_frontier(request: Request, devices: int) -> tuple[GraphProblem, Frontier]:
    """The frontier on some devices, by the algorithm that is asked for.

    Frontier tracking goes from coarse meshes to finer ones where the devices have more axes than
    can be searched at once. It ends after the request's seconds with what it has; where that is no
    frontier yet, with the first. Interrupted before that, it ends with data parallelism. No
    frontier is without a point that is as good as that.
    """
    return search_once("frontier", request, devices, lambda: _searched(request, devices))


def _searched(request: Request, devices: int) -> tuple[GraphProblem, Frontier]:
    meshes = request.meshes(devices)
    if request.algorithm != "ft":
        problem = searched_problem(request, devices)
        return problem, solver(request.algorithm)(problem).found
    if len(meshes) > 1:
        epsilon = max(request.epsilon, _FINEST)
        with Watch(seconds=request.search_seconds) as watch:
            problem, frontier = coarse_to_fine(
                lambda mesh: problem_of(request, devices, mesh), meshes, epsilon
            )
    else:
        problem = problem_of(request, devices)
        worth = _worth(request, problem)
        with Watch(seconds=request.search_seconds, worth=worth) as watch:
            frontier = _track_frontier(problem, request.epsilon).found
    if not frontier.exact:  # as data parallelism is what plans are compared with
        frontier = joined_frontier(frontier, data_parallel.incumbent(problem))
    return problem, replace(frontier, ended_by=watch.ended_by)


def _worth(request: Request, problem: GraphProblem) -> Callable[[float], float] | None:
    """Of a proven gap, for how many seconds it is searched at most: data parallelism's steps are
    shorter by no larger share, once that gap is proven."""
    if request.steps is None:
        return None
    step = int(data_parallel.incumbent(problem).time.min())
    return lambda gap: max(_LEAST_SECONDS, request.worth_seconds(step, gap))


@interruptible
def _track_frontier(problem: GraphProblem, epsilon: float) -> Outcome:
    keep(partial(data_parallel.incumbent, problem), last_resort=True)
    return solver("ft")(problem, epsilon=epsilon)


def searched_problem(request: Request, devices: int, mesh: Mesh | None = None) -> GraphProblem:
    """The problem that a request's algorithm searches: the systems of the papers read no partial
    sums."""
    if request.algorithm not in ("ft", "brute_force"):
        request = replace(request, space=replace(request.space, partial_operands=False))
    return problem_of(request, devices, mesh)


def problem_of(request: Request, devices: int, mesh: Mesh | None = None) -> GraphProblem:
    """What is searched on some devices, on one of the request's meshes (the last, if None)."""
    return graph_problem(_annotated(request, request.cost_model(devices, mesh)))


def least_bytes(request: Request, devices: int) -> int:
    """Memory that every strategy takes on so many devices, at least; see `least_memory_bytes`."""

    def least() -> int:
        return least_memory_bytes(_annotated(request, request.cost_model(devices)))

    return search_once("least bytes", request, devices, least)


def _annotated(request: Request, cost: ClusterCostModel) -> AnnotatedGraph:
    """The request's graph on the devices of a cost model.

    Of several microbatches each is computed by itself: its operators have its shapes, and run once
    for each.
    """
    cut = request.cut
    return AnnotatedGraph.of(
        request.graph if cut is None else graph_of_one(cut),
        cost.mesh,
        cost,
        request.batch_placeholders,
        request.reads,
        request.space,
        request.repeats,
    )
