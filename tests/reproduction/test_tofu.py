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
from reproduction.tofu.partition_claims import partition_claims
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
    assert len(judged) == 14
    as_in_the_paper["RNN-6-4K"]["placement"] = 300.0
    as_in_the_paper["WResNet-152-10"]["ours"] = None
    as_in_the_paper["WResNet-152-10"]["smallbatch"] = 1.0
    failing = [claim.claim for claim in claims(as_in_the_paper) if not claim.holds]
    assert len(failing) == 5
    assert all("placement" in claim for claim in failing[:1] + failing[2:4])
    assert failing[1].startswith("Figure 8: SmallBatch")
    assert failing[4].startswith("ours is")


def partition(seconds: float, communication: float, gb: float) -> dict[str, float]:
    return {"seconds": seconds, "communication_share": communication, "stored_gb": gb}


def test_claims_about_partitions_follow_from_the_report() -> None:
    rows = {
        "AllRow-Greedy": partition(5.0, 0.3, 60.0),
        "Spartan": partition(4.5, 0.22, 11.0),
        "EqualChop": partition(4.4, 0.24, 11.0),
        "ICML18": partition(4.28, 0.1, 13.0),
        "Tofu": partition(4.0, 0.1, 11.0),
    }
    groups = {"stage 1": True, "stage 2": True}
    fetched = {name: {"weights": 1.0, "activations": 0.0} for name in groups}
    report = {
        "table2": [{"model": "RNN-6-4K", "gb": 8.5, "paper_gb": 8.4}],
        "figure10": {"WResNet-152-10": rows, "RNN-4-8K": rows},
        "figure11": {
            "indices_split": {"n": 1, "c": 1},
            "several_dimensions": True,
            "convolutions_of_a_block_differ": True,
            "repeated_blocks_alike": 1.0,
            "first_block_differs": groups,
            "fetched_gb": fetched,
            "weights_share_falls": True,
        },
        "theorem2": {"RNN-4-8K": {"gb_of_each_halving": [1.0, 1.0, 2.0], "never_falls": True}},
    }
    judged = list(partition_claims(report))
    assert [claim.claim for claim in judged if not claim.holds] == []
    assert len(judged) == 16
    rows["ICML18"] = partition(4.1, 0.1, 11.0)
    rows["EqualChop"] = partition(4.1, 0.29, 11.0)
    report["figure11"]["repeated_blocks_alike"] = 0.9
    failing = [claim.claim for claim in partition_claims(report) if not claim.holds]
    assert sum("ICML18" in claim for claim in failing) == 2
    assert sum("EqualChop" in claim for claim in failing) == 4
    assert len(failing) == 7


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
