"""Tofu's evaluation: sizes of its models, its rivals' strategies, and its Theorem 2."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from examples.models import lstm_language_model
from reproduction.baselines import tofu_recursive
from reproduction.tofu import systems
from reproduction.tofu.__main__ import table_2
from reproduction.tofu.alternatives import (
    ALTERNATIVES,
    all_row_greedy,
    equal_chop,
    icml18,
)
from reproduction.tofu.claims import claims
from reproduction.tofu.systems import SYSTEMS, Assumed, throughputs
from reproduction.tofu.traffic import Traffic, step_bytes
from tensoropt.cost.cluster import load_cluster
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.baselines.nearest import leader_assignments
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.tensor_spec import TensorSpec

CLUSTER = load_cluster("8-k80")
MESH = CLUSTER.mesh(8)


def chain(seed: int) -> GraphProblem:
    """Products in a chain, of sizes that divide by 8 and with sums across some; gradients."""
    draw = random.Random(seed)
    sizes = [64 * draw.choice([1, 2, 3, 4, 8, 16]) for _ in range(5)]
    operators: list[Operator] = []
    weights: list[tuple[str, TensorSpec]] = []

    def weight(name: str, shape: tuple[int, int]) -> TensorName:
        spec, stored = TensorSpec(shape, "float32"), TensorSpec(shape, "float32_ref")
        operators.append(Operator(name, "VariableV2", (), (), (stored,), {"dtype": "float32"}))
        read, handle = f"{name}/read", TensorName(name, 0)
        operators.append(Operator(read, "Identity", (handle,), (stored,), (spec,)))
        weights.append((name, spec))
        return TensorName(read, 0)

    h, rows, width = weight("x", (sizes[0], sizes[1])), sizes[0], sizes[1]
    for number, size in enumerate(sizes[2:]):
        after = size if draw.random() < 0.6 else width
        w = weight(f"w{number}", (width, after))
        specs = tuple(TensorSpec(each, "float32") for each in ((rows, width), (width, after)))
        out, flags = TensorSpec((rows, after), "float32"), {"transpose_a": False}
        flags |= {"transpose_b": False}
        operators.append(Operator(f"product{number}", "MatMul", (h, w), specs, (out,), flags))
        product = TensorName(f"product{number}", 0)
        if after == width and draw.random() < 0.6:
            operators.append(Operator(f"sum{number}", "AddV2", (h, product), (out, out), (out,)))
            product = TensorName(f"sum{number}", 0)
        h, width = product, after
    result = TensorSpec((rows, width), "float32")
    for name, spec in weights:
        tag = GradientTag(0, "dense", (h,), TensorName(name, 0), (None,), ())
        operators.append(Operator(f"by {name}", GRADIENT, (h,), (result,), (spec,), gradient=tag))
    graph = Graph({operator.name: operator for operator in operators})
    return graph_problem(AnnotatedGraph.of(graph, MESH, Traffic(CLUSTER, MESH)))


@pytest.mark.parametrize("seed", range(6))
def test_the_communication_of_a_halving_is_never_less_than_of_the_one_before(seed: int) -> None:
    problem = chain(seed)
    added = step_bytes(problem)
    # Local steps of reshardings count as a byte each, on every device.
    assert (np.diff(added) >= -8 * len(problem.problem.edges)).all()


def test_rivals_split_as_they_are_said_to_and_recursion_takes_no_more_traffic() -> None:
    for seed in range(3):
        problem = chain(seed)
        found = {name: solve(problem) for name, solve in ALTERNATIVES.items()}
        recursive = tofu_recursive.solve(problem)
        for each in found.values():
            assert problem.problem.cost(each.strategies[0].tolist())[1] == each.time[0]
        assert recursive.time[0] <= min(found[n].time[0] for n in ("AllRow-Greedy", "EqualChop"))
        for solve in (all_row_greedy, equal_chop):
            assert all(len(axes) == 1 for axes in _indices(problem, solve))
        for node, indices in enumerate(_indices(problem, icml18)):
            leader = problem.derivations[problem.choices[node].leader]
            assert all(leader.indices[index].reducer is None for index in indices)


def _indices(problem: GraphProblem, solve: Callable[[GraphProblem], Frontier]) -> list[set[int]]:
    """The indices that each node's leader splits."""
    strategy = solve(problem).strategies[0].tolist()
    return [
        set(leader_assignments(problem, node)[number].tolist())
        for node, number in enumerate(strategy)
    ]


def test_weights_come_to_what_the_paper_says() -> None:
    for row in table_2():
        assert row["gb"] == pytest.approx(row["paper_gb"], rel=0.12), row


def test_claims_about_throughput_follow_from_it() -> None:
    as_in_the_paper: dict[str, systems.Found] = {
        "RNN-6-4K": {"ideal": 220.0, "smallbatch": 150.0, "swapping": 60.0, "placement": 107.0},
        "RNN-10-8K": {"ideal": 40.0, "smallbatch": None, "swapping": 8.0, "placement": None},
        "WResNet-152-10": {"ideal": 10.0, "smallbatch": None, "swapping": 4.0},
    }
    for model, tofu in (("RNN-6-4K", 210.0), ("RNN-10-8K", 30.0), ("WResNet-152-10", 6.5)):
        as_in_the_paper[model] |= {"tofu": tofu, "ours": tofu}
    judged = list(claims(as_in_the_paper))
    assert [claim.claim for claim in judged if not claim.holds] == []
    assert len(judged) == 12
    as_in_the_paper["RNN-6-4K"]["placement"] = 300.0
    as_in_the_paper["WResNet-152-10"]["ours"] = None
    failing = [claim.claim for claim in claims(as_in_the_paper) if not claim.holds]
    assert len(failing) == 4
    assert all("placement" in claim for claim in failing[:3])
    assert failing[3].startswith("ours is")


def test_a_small_model_has_a_throughput_of_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"RNN-2-tiny": lambda: lstm_language_model(64, 2, 2, vocabulary=64, embedding=16)}
    monkeypatch.setattr(systems, "ALL", small)
    monkeypatch.setattr(systems, "_LARGEST", {"RNN": 16})
    found = throughputs("RNN-2-tiny", assumed=Assumed(small=0.5))
    assert found.keys() == set(SYSTEMS)
    rates = [rate for rate in found.values() if rate is not None]
    assert len(rates) == len(SYSTEMS)
    assert found["swapping"] == found["ideal"] == max(rates)
    assert found["smallbatch"] is not None
    assert found["smallbatch"] < max(rates)
