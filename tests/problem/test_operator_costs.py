"""What an operator's split costs inside it."""

from __future__ import annotations

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import Configuration, configurations
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.operators.one_configuration import operator_nanoseconds
from tensoropt.tdl import Derivation, derive


@pytest.fixture
def convolution() -> tuple[Operator, Derivation]:
    inputs = tuple(TensorSpec(shape, "float32") for shape in [(8, 64, 32, 16), (5, 3, 16, 16)])
    outputs = (TensorSpec((8, 64, 32, 16), "float32"),)
    attributes = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    names = (TensorName("x", 0), TensorName("w", 0))
    operator = Operator("conv", "Conv2D", names, inputs, outputs, attributes)
    return operator, derive("Conv2D", inputs, outputs, attributes)


def way(derivation: Derivation, mesh: Mesh, name: str, pieces: int) -> Configuration:
    for found in configurations(derivation, mesh):
        if mesh.pieces(found.splits[derivation.index(name)]) == pieces:
            return found
    raise AssertionError(name)


def test_halos_are_priced_forward_and_backward(convolution: tuple[Operator, Derivation]) -> None:
    operator, derivation = convolution
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(4)
    cost = ClusterCostModel(cluster, mesh)

    def inner(name: str, pieces: int, differentiated: int) -> int:
        """Beyond the batch's split into as many pieces, which moves nothing."""
        taken = [
            operator_nanoseconds(operator, derivation, each, mesh, cost, differentiated)
            for each in (way(derivation, mesh, name, pieces), way(derivation, mesh, "b", pieces))
        ]
        return taken[0] - taken[1]

    y = way(derivation, mesh, "y", 4).splits[derivation.index("y")]
    row_bytes = 8 * 32 * 16 * 4
    halo = cost.collective_nanoseconds("exchange", y, 4 * row_bytes)
    copy = cost.collective_nanoseconds("slice", y, (16 + 4) * row_bytes)
    assert inner("y", 4, 2) == 2 * (halo + copy)
    assert inner("y", 4, 1) == halo + copy  # of the filters alone
