"""Matrices that several products share: one product computes the gradient of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensoropt.cost.model import CostModel
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker.operator_shard import OperatorShard, is_known, work_of

__all__ = ["SharedMatrices"]


class SharedMatrices:
    """The second factors that several products of a graph read, in a recurrence for example.

    The rows of all these products are put together, and multiplied once, if they are fewer elements
    than the gradients that would be added otherwise.

    Args:
        graph: the operators.
        carried: for each operator the inputs with a gradient.
        mesh: the devices.
        cost: the prices.
    """

    def __init__(
        self, graph: Graph, carried: Mapping[str, tuple[int, ...]], mesh: Mesh, cost: CostModel
    ) -> None:
        self._mesh = mesh
        self._cost = cost
        readers: dict[TensorName, list[Operator]] = {}
        for name, numbers in carried.items():
            if graph[name].type == "MatMul" and 1 in numbers:
                readers.setdefault(graph[name].inputs[1], []).append(graph[name])
        self._products = {
            matrix: products for matrix, products in readers.items() if _are_alike(products)
        }
        self._count = {
            product.name: len(products)
            for products in self._products.values()
            for product in products
        }

    def share(self, shard: OperatorShard) -> int | None:
        """Nanoseconds of the one product that each of its products counts; None if each has its
        own."""
        operator, count = shard.operator, self._count.get(shard.operator.name, 1)
        if count == 1:
            return None
        rows, above = shard.inputs[0], shard.outputs[0]
        elements = count * (prod(rows) + prod(above))
        if elements > (count - 1) * prod(shard.inputs[1]):
            return None
        factors = (above, rows) if operator.attributes.get("transpose_b") else (rows, above)
        dtype = operator.outputs[0].dtype
        joined = Operator(
            name="joined",
            type="MatMul",
            inputs=(TensorName("a", 0), TensorName("b", 0)),
            input_specs=tuple(TensorSpec((count * n, width), dtype) for n, width in factors),
            outputs=(TensorSpec((factors[0][1], factors[1][1]), dtype),),
            attributes={"transpose_a": True, "transpose_b": False, "T": dtype},
        )
        work = work_of(self._whole(joined), 0)
        copied = elements * operator.outputs[0].itemsize
        time = self._cost.operator_nanoseconds(work).forward
        return round((time + self._cost.collective_nanoseconds("slice", (), copied)) / count)

    def spared(self, tensor: TensorName) -> int:
        """The number of gradients fewer that are added, by what is joined on one device."""
        first, *others = self._products.get(tensor, [None])
        joins = first is not None and self.share(self._whole(first)) is not None
        return len(others) if joins else 0

    def _whole(self, operator: Operator) -> OperatorShard:
        derivation = derivation_of(operator)
        return OperatorShard(operator, derivation, ((),) * len(derivation.indices), self._mesh)


def _are_alike(products: list[Operator]) -> bool:
    forms = {
        (
            product.input_specs[0].shape,
            bool(product.attributes.get("transpose_a")),
            bool(product.attributes.get("transpose_b")),
        )
        for product in products
    }
    first = products[0]
    return (
        len(products) > 1
        and len(forms) == 1
        and not first.attributes.get("transpose_a")
        and is_known(first.input_specs[0])
    )
