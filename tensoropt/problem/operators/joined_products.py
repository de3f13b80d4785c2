"""Gradients by a matrix that several products share, as ranks make them: by one product.

Where the steps of a recurrence share weights, `tensoropt.execution.gradients.matrix_products`
makes one product of all steps' rows, in place of a gradient as large as the weights for each step
and their sum. So a step of training takes less than its operators, each with its own gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from tensoropt.cost.local_operator import LocalOperator
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec

__all__ = ["MATRIX", "JoinedProduct", "joined_product", "sharing_products"]

MATRIX = 1
"""The input that is the shared matrix."""


class JoinedProduct(NamedTuple):
    """The gradient by a matrix that products share, on one device.

    Attributes:
        product: of all their rows.
        copied_bytes: what is copied to be its factors.
    """

    product: LocalOperator
    copied_bytes: int


def sharing_products(
    graph: Graph, differentiated: Mapping[str, tuple[int, ...]]
) -> dict[TensorName, list[str]]:
    """The matrices that several products of one shape share, and these products.

    Args:
        graph: one training step, shapes bound.
        differentiated: per operator the inputs with a gradient.
    """
    products: dict[TensorName, list[Operator]] = {}
    for name, numbers in differentiated.items():
        if graph[name].type == "MatMul" and MATRIX in numbers:
            products.setdefault(graph[name].inputs[MATRIX], []).append(graph[name])
    return {
        tensor: [each.name for each in own]
        for tensor, own in products.items()
        if len(own) > 1
        and len({(each.input_specs[0].shape, _turned(each)) for each in own}) == 1
        and not _turned(own[0])[0]
        and -1 not in own[0].input_specs[0].shape
    }


def joined_product(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    count: int,
) -> JoinedProduct | None:
    """What makes the gradient by the matrix of so many products; None where each makes its own.

    That is where all their other factors are larger than the gradients that would be added up, as
    on the ranks.

    Args:
        operator: one of the products.
        derivation: of it.
        configuration: of all of them.
        mesh: the devices.
        count: how many.
    """
    left, matrix = (
        input_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
        for n, shape in enumerate(derivation.input_shapes)
    )
    made = output_slot(derivation, configuration, 0).gradient
    upstream = made.local_shape(derivation.output_shapes[0], mesh)
    elements = count * (prod(left) + prod(upstream))
    if elements > (count - 1) * prod(matrix):
        return None
    dtype = operator.outputs[0].dtype
    factors = (upstream, left) if _turned(operator)[1] else (left, upstream)
    joined = Operator(
        name="product_of_gradients",
        type="MatMul",
        inputs=(TensorName("left", 0), TensorName("right", 0)),
        input_specs=tuple(TensorSpec((count * rows, of), dtype) for rows, of in factors),
        outputs=(TensorSpec((factors[0][1], factors[1][1]), dtype),),
        attributes={"transpose_a": True, "transpose_b": False, "T": dtype},
        synthetic=True,
    )
    own = derivation_of(joined)
    alone = redundant(own)
    work = operator_work(joined, own, alone, mesh, 0)
    assert isinstance(work, OperatorWork), "a product computes"
    itemsize = operator.outputs[0].itemsize
    return JoinedProduct(LocalOperator(joined, own, alone, (), work), elements * itemsize)


def _turned(operator: Operator) -> tuple[bool, bool]:
    """Whether each factor is transposed."""
    return bool(operator.attributes.get("transpose_a")), bool(
        operator.attributes.get("transpose_b")
    )
