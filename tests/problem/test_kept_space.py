"""The search decides which tensors are kept: costs by hand, the frontier by enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.problem.from_graph import GraphProblem, ProblemBuilder, graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier

KB = 1024
Maker = Callable[..., Graph]
CLUSTER = load_cluster("2x8-v100")
PLAIN, REUSE, RECOMPUTE = Space(), Space(reuse=True), Space(recompute=True)
ALL = Space(reuse=True, recompute=True)
READS = {
    "Softsign": ((0,), ()),
    "MatMul": ((0, 1), ()),
    "Softplus": ((0,), ()),
    "Relu": ((), (0,)),
    "Square": ((0,), ()),
}


def reads_of(graph: Graph) -> BackwardReads:
    found = {op.name: READS[op.type] for op in graph if op.type in READS}
    inputs = {name: read for name, (read, _) in found.items() if read}
    outputs = {name: read for name, (_, read) in found.items() if read}
    return BackwardReads({**inputs, "loss": (0,)}, outputs)


def problem_of(
    graph: Graph, space: Space, devices: int = 1, model: str = "execution"
) -> GraphProblem:
    mesh = CLUSTER.mesh(devices)
    cost = ClusterCostModel(CLUSTER, mesh, model)
    return graph_problem(
        AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"}), reads_of(graph), space)
    )


def chosen(problem: GraphProblem, kept: dict[str, str]) -> tuple[int, int]:
    """Memory and time on one device with this kept of each operator's outputs."""
    numbers = [
        group.options.kept.index(kept.get(group.leader, "both")) for group in problem.choices
    ]
    return problem.problem.cost(numbers)


def dominates(frontier: Frontier, other: Frontier) -> bool:
    """Whether every point of the other is matched or bettered."""
    points = list(zip(frontier.memory, frontier.time, strict=True))
    return all(
        any(m <= memory and t <= time for m, t in points)
        for memory, time in zip(other.memory, other.time, strict=True)
    )


def test_every_tensor_that_is_read_counts_once(chain: Maker) -> None:
    # x, w, its gradient, the product that Softplus reads, and what Square and the loss read.
    problem = problem_of(chain("Softplus", "Square"), PLAIN)
    assert [group.options.kept for group in problem.choices] == [("both",)] * 6
    assert chosen(problem, {})[0] == 6 * KB


def test_what_is_computed_again_is_not_kept_and_takes_time(chain: Maker) -> None:
    problem = problem_of(chain("Softplus", "Square"), RECOMPUTE)
    offered = {group.leader: group.options.kept for group in problem.choices}
    assert offered["softplus"] == offered["square"] == ("both", "recomputed")
    assert offered["product"] == offered["w"] == offered["x"] == ("both",)  # a contraction
    memory, time = chosen(problem, {})
    less, longer = chosen(problem, {"softplus": "recomputed"})
    assert memory == 6 * KB
    assert less == 5 * KB
    assert longer > time
    least, longest = chosen(problem, {"softplus": "recomputed", "square": "recomputed"})
    assert least == 4 * KB
    assert longest > longer


def test_what_computing_again_reads_is_kept_for_it(chain: Maker) -> None:
    # ReLU's gradient reads its output alone; computed again, it needs its input, or that of Neg.
    problem = problem_of(chain("Neg", "Relu"), RECOMPUTE)
    assert chosen(problem, {})[0] == 4 * KB
    assert chosen(problem, {"relu": "recomputed"})[0] == 4 * KB
    assert chosen(problem, {"neg": "recomputed", "relu": "recomputed"})[0] == 4 * KB


def test_the_paper_model_counts_what_is_computed_again_neither(chain: Maker) -> None:
    problem = problem_of(chain("Softplus"), RECOMPUTE, model="paper")
    assert chosen(problem, {})[0] - chosen(problem, {"softplus": "recomputed"})[0] == KB


@pytest.mark.parametrize("kinds", [("Softplus",), ("Relu",)])
@pytest.mark.parametrize("space", [REUSE, ALL])
def test_the_frontier_is_that_of_enumeration(
    chain: Maker, kinds: tuple[str, ...], space: Space
) -> None:
    problem = problem_of(chain(*kinds), space, devices=2)
    found, truth = frontier_tracking(problem.problem), brute_force(problem.problem)
    np.testing.assert_array_equal(found.memory, truth.memory)
    np.testing.assert_array_equal(found.time, truth.time)
    for strategy, memory, time in zip(found.strategies, found.memory, found.time, strict=True):
        assert problem.problem.cost(problem.simplest(strategy.tolist())) == (memory, time)


def test_more_choices_lose_no_strategy_and_need_less_memory(chain: Maker) -> None:
    graph = chain("Softplus", "Relu", "Softsign")
    found = {}
    for space in (PLAIN, REUSE, RECOMPUTE, ALL):
        found[space] = frontier_tracking(problem_of(graph, space, devices=4).problem)
    for space in (REUSE, RECOMPUTE, ALL):
        assert dominates(found[space], found[PLAIN])
    assert dominates(found[ALL], found[REUSE])
    assert dominates(found[ALL], found[RECOMPUTE])
    assert not dominates(found[PLAIN], found[REUSE])
    assert found[RECOMPUTE].memory[0] < found[PLAIN].memory[0]


def test_variables_are_stored_in_pieces_where_memory_is_least(chain: Maker) -> None:
    problem = problem_of(chain("Softplus"), PLAIN, devices=4)
    frontier = frontier_tracking(problem.problem)
    least = problem.configurations(frontier.strategies[0].tolist())
    assert sum(map(len, least["w"].splits)) == sum(map(len, least["dw"].splits)) == 2


def test_a_bound_below_all_strategies_holds_there_too(chain: Maker) -> None:
    graph, mesh = chain("Softplus", "Square"), CLUSTER.mesh(2)
    cost = ClusterCostModel(CLUSTER, mesh, "execution")
    annotated = AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"}), reads_of(graph), ALL)
    bound = ProblemBuilder(annotated).least_memory_bytes()
    frontier = frontier_tracking(problem_of(graph, ALL, devices=2).problem)
    assert 0 < bound <= frontier.memory[0]


def test_small_tensors_have_no_choice(chain: Maker) -> None:
    space = Space(reuse=True, recompute=True, smallest_share=0.9)
    problem = problem_of(chain("Softplus"), space, devices=2)
    assert {group.options.kept for group in problem.choices} == {("both",)}
    with pytest.raises(OptionError, match="between 0 and 1"):
        Space(smallest_share=2)
