"""Prices of the reproductions: flat rings between machines, and fused operators."""

from __future__ import annotations

import pytest

from reproduction.paper.testbed import PaperCosts, paper_cluster
from reproduction.unity.fused import FUSED, FusedPrices
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorWork

BYTES = 1 << 30
CLUSTER = paper_cluster("2x8-v100")
MESH = CLUSTER.mesh(16)  # 2, 2, 2, 2; the first axis is between the machines
CARD = 0.976 * 12.5e9  # bytes per second


@pytest.mark.parametrize("inside", [0, 1, 2, 3])
def test_a_ring_sends_all_but_one_ranks_share_through_a_card(inside: int) -> None:
    axes = tuple(range(1 + inside))
    flat = PaperCosts(CLUSTER, MESH).network_seconds("allreduce", axes, BYTES)
    within = axes[1:]
    inner = PaperCosts(CLUSTER, MESH).network_seconds("allreduce", within, BYTES) if inside else 0
    ranks = 2 << inside
    rings = 16 // ranks  # which share the cards
    assert flat - inner == pytest.approx(2 * (ranks - 1) / ranks * rings * BYTES / CARD, rel=1e-3)


def test_pairs_of_machines_and_all_to_alls_have_the_card_alone() -> None:
    plain, flat = ClusterCostModel(CLUSTER, MESH), PaperCosts(CLUSTER, MESH)
    for kind, axes in (("allreduce", (0,)), ("alltoall", (0, 1, 2, 3)), ("allgather", (1, 2))):
        seconds = plain.network_seconds(kind, axes, BYTES)
        assert flat.network_seconds(kind, axes, BYTES) == pytest.approx(seconds)


@pytest.mark.parametrize("inputs", [2, 3])
def test_a_bias_and_an_activation_are_no_product(inputs: int) -> None:
    cluster = load_cluster("8-v100")
    shapes = ((512, 1024), (1024, 4096), (4096,))[:inputs]
    flops, bytes_ = 2 * 512 * 1024 * 4096, 4 * (512 * 1024 + 1024 * 4096 + 512 * 4096)
    alone, fused = (
        OperatorWork("contraction", "float32", flops, bytes_, count, name, (), shapes)
        for count, name in ((2, "MatMul"), (inputs, FUSED))
    )
    prices = FusedPrices(cluster, cluster.mesh(1))
    product, whole = (prices.operator_nanoseconds(work).total for work in (alone, fused))
    assert product < whole < 1.06 * product
