"""One product for the gradient by a matrix that several products share.

If the steps of a recurrence share weights, the module
`tensoropt.execution.gradient_functions.matrix_products` joins the rows of all steps and computes
the gradient by the weights with one product. Otherwise each step would compute a gradient as large
as the weights, and these would be added. So a training step takes less time than the sum over its
operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from tensoropt.cost.operator_time import LocalOperator, OperatorWork
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.problem.operators.reader_gradient_sums import reader_gradient_sums
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "MATRIX",
    "JoinedProduct",
    "added_gradients",
    "joined_product",
    "number_sharing",
    "sharing_products",
]

MATRIX = 1
"""Number of the MatMul input that is shared."""


class JoinedProduct(NamedTuple):
    """The joined product on one device.

    Attributes:
        product: the product of all rows.
        copied_bytes: bytes that are copied to join the rows of its factors.
    """

    product: LocalOperator
    copied_bytes: int


def sharing_products(
    graph: Graph, differentiated: Mapping[str, tuple[int, ...]]
) -> dict[TensorName, list[str]]:
    """Return the matrices that several products of one shape share, with the names of these
    products.

    Args:
        graph: the graph of one training step, with known shapes.
        differentiated: for each operator the inputs whose gradient is computed.
    """
    products: dict[TensorName, list[Operator]] = {}
    for name, numbers in differentiated.items():
        if graph[name].type == "MatMul" and MATRIX in numbers:
            products.setdefault(graph[name].inputs[MATRIX], []).append(graph[name])
    return {
        tensor: [product.name for product in sharing]
        for tensor, sharing in products.items()
        if len(sharing) > 1
        and len({(product.input_specs[0].shape, _transposed(product)) for product in sharing}) == 1
        and not _transposed(sharing[0])[0]
        and -1 not in sharing[0].input_specs[0].shape
    }


def number_sharing(shared: Mapping[TensorName, Sequence[str]]) -> dict[str, int]:
    """Return for each product of `sharing_products` the number of those that share its matrix."""
    return {name: len(names) for names in shared.values() for name in names}


def added_gradients(
    graph: Graph,
    differentiated: Mapping[str, tuple[int, ...]],
    shared: Mapping[TensorName, Sequence[str]],
    mesh: Mesh,
) -> dict[TensorName, int]:
    """Return `reader_gradient_sums` in which the gradients of a joined product are one.

    Products that are joined while nothing is split count as joined under all configurations.

    Args:
        graph, differentiated: see `sharing_products`.
        shared: what it returns.
        mesh: the devices.
    """
    counts = Counter(reader_gradient_sums(graph, differentiated))
    for matrix, names in shared.items():
        operator = graph[names[0]]
        derivation = derivation_of(operator)
        unsplit = redundant(derivation)
        if joined_product(operator, derivation, unsplit, mesh, len(names)) is not None:
            counts[matrix] -= len(names) - 1
    return {tensor: count for tensor, count in counts.items() if count > 1}


def joined_product(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    count: int,
) -> JoinedProduct | None:
    """Return the product that computes the gradient by a shared matrix, None if joining does not
    pay.

    As in execution, products are joined unless their other factors together are larger than the
    gradients that would be added.

    Args:
        operator: one of the products.
        derivation: its derivation.
        configuration: the configuration of all products.
        mesh: the devices.
        count: number of products.
    """
    left, matrix = (
        input_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
        for n, shape in enumerate(derivation.input_shapes)
    )
    gradient = output_slot(derivation, configuration, 0).gradient
    upstream = gradient.local_shape(derivation.output_shapes[0], mesh)
    elements = count * (prod(left) + prod(upstream))
    if elements > (count - 1) * prod(matrix):
        return None
    dtype = operator.outputs[0].dtype
    factors = (upstream, left) if _transposed(operator)[1] else (left, upstream)
    joined = Operator(
        name="product_of_gradients",
        type="MatMul",
        inputs=(TensorName("left", 0), TensorName("right", 0)),
        input_specs=tuple(TensorSpec((count * rows, columns), dtype) for rows, columns in factors),
        outputs=(TensorSpec((factors[0][1], factors[1][1]), dtype),),
        attributes={"transpose_a": True, "transpose_b": False, "T": dtype},
        synthetic=True,
    )
    joined_derivation = derivation_of(joined)
    unsplit = redundant(joined_derivation)
    work = operator_work(joined, joined_derivation, unsplit, mesh, 0)
    assert isinstance(work, OperatorWork), "a product computes"
    itemsize = operator.outputs[0].itemsize
    product = LocalOperator(joined, joined_derivation, unsplit, (), work)
    return JoinedProduct(product, elements * itemsize)


def _transposed(operator: Operator) -> tuple[bool, bool]:
    """Whether each factor of a product is transposed."""
    return bool(operator.attributes.get("transpose_a")), bool(
        operator.attributes.get("transpose_b")
    )
