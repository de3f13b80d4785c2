"""From coarse meshes to finer ones: never worse, and interrupted anywhere still strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.search.baselines import data_parallel
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.multilevel import coarse_to_fine as module
from tensoropt.search.multilevel.coarse_to_fine import Known, coarse_to_fine
from tensoropt.search.multilevel.refinement import refinements
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.watch import Watch

Build = Callable[[Mesh], GraphProblem]
Interrupting = Callable[..., Watch]
MESHES = refinements((2, 8), 4)


@pytest.fixture(scope="module")
def build(chain: Callable[..., Graph]) -> Build:
    """The problem of a small step on a mesh of 16 devices."""
    return building(chain("Softplus", "Relu", "Sin"))


def building(graph: Graph, cluster_name: str = "2x8-v100") -> Build:
    cluster = load_cluster(cluster_name)
    known: dict[Mesh, GraphProblem] = {}

    def make(mesh: Mesh) -> GraphProblem:
        if mesh not in known:
            cost = ClusterCostModel(cluster, mesh)
            known[mesh] = graph_problem(AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"})))
        return known[mesh]

    return make


def check(problem: GraphProblem, found: Frontier) -> None:
    memory, time = problem.problem.costs(found.strategies)
    assert np.array_equal(memory, found.memory)
    assert np.array_equal(time, found.time)


def test_the_last_mesh_is_searched_with_what_coarse_ones_know(build: Build) -> None:
    problem, found = coarse_to_fine(build, MESHES)
    assert problem.mesh == MESHES[-1].mesh == Mesh.of(16)
    check(problem, found)
    truth = frontier_tracking(problem.problem)
    assert truth.dominates(found)
    assert found.is_within(DEFAULT_LIMITS.closing_gap)
    assert found.within is not None
    near = (found.memory[:, None] <= (1 + found.within) * truth.memory) & (
        found.time[:, None] <= (1 + found.within) * truth.time
    )
    assert near.any(axis=0).all()


def test_the_last_mesh_is_searched_up_to_the_gap_that_is_asked_for(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: list[tuple[float, bool]] = []

    def spied(problem: Any, epsilon: float, *given: Any, closes: bool, **more: Any) -> Any:
        gaps.append((epsilon, closes))
        return branch_and_bound(problem, epsilon, *given, closes=closes, **more)

    monkeypatch.setattr(module, "branch_and_bound", spied)
    for asked, reached in ((0.0, DEFAULT_LIMITS.approximate_gap), (0.004, 0.004), (0.06, 0.06)):
        gaps.clear()
        _, found = coarse_to_fine(build, MESHES, asked)
        assert gaps[-1] == (reached, asked == 0)
        assert {gap for gap, _ in gaps[:-1]} == {max(asked, DEFAULT_LIMITS.coarse_gap)}
        assert found.is_within(reached)


def test_interrupted_it_ends_with_strategies_of_some_mesh(
    build: Build, interrupting: Interrupting
) -> None:
    told: list[str] = []
    with interrupting(told=told):
        coarse_to_fine(build, MESHES)
    meshes = set()
    for at in range(2, len(told) + 1):  # at the first there is not even a problem
        with interrupting(at) as watch:
            problem, found = coarse_to_fine(build, MESHES)
        assert watch.interrupted
        check(problem, found)
        meshes.add(str(problem.mesh))
    assert len(meshes) > 1


def test_interrupted_before_it_knows_anything_it_ends_with_data_parallelism(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "branch_and_bound", interrupted)
    with Watch() as watch:
        problem, found = coarse_to_fine(build, MESHES)
    assert watch.interrupted
    assert found.same_costs(data_parallel.solve(problem))
    assert not found.exact


@pytest.mark.parametrize("count", [1, len(MESHES)])
def test_a_search_begins_with_strategies_of_a_similar_step(
    build: Build, chain: Callable[..., Graph], count: int
) -> None:
    """Without time, it ends with them: their splits at this step's prices."""
    slower_links = building(chain("Softplus", "Relu", "Sin"), "2x8-v100-no-rdma")
    known = Known(*coarse_to_fine(slower_links, MESHES[:count]))
    with Watch(seconds=0.0, clock=lambda: 0.0):
        problem, begun = coarse_to_fine(build, MESHES, known=known)
    assert problem.mesh == MESHES[count - 1].mesh
    check(problem, begun)
    costs = problem.problem.costs(known.frontier.strategies)
    assert begun.same_costs(reduced_frontier(*costs, known.frontier.strategies))
    _, found = coarse_to_fine(build, MESHES, known=known)
    assert found.dominates(begun)
    assert found.is_within(DEFAULT_LIMITS.closing_gap)


def test_strategies_of_other_operators_are_not_used(
    build: Build, chain: Callable[..., Graph]
) -> None:
    known = Known(*coarse_to_fine(building(chain("Relu")), MESHES))
    _, found = coarse_to_fine(build, MESHES, known=known)
    assert found.same_costs(coarse_to_fine(build, MESHES)[1])
