"""Products and their activations as one operator, as TASO fuses them on one device (Figure 4a).

A fused operator reads and writes less. Its sum cannot be split over devices, because the activation
of a partial sum is not a part of the activation (Figure 2). Fused operators are priced and never
run: TensorFlow fuses operators on each rank that a plan leaves whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from math import prod
from typing import Any, ClassVar

from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork, roofline_time
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.request import Request
from tensoropt.tdl.expression import Operand, Sum, elementwise
from tensoropt.tdl.registry import describe, operator_type
from tensoropt.transformations.rewritten.needed import needed

__all__ = ["FUSED", "FusedPrices", "fuse_activations", "with_fused_prices"]

FUSED = "FusedMatMulActivation"
"""Type of an operator that is a `MatMul`, perhaps a bias, and an activation."""

_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh"})
_function = elementwise("function")


def _fused(a: Operand, b: Operand, *bias: Operand) -> Any:
    """The description of the activation of a product, whose index of the sum cannot be split."""
    return lambda m, n: _function(Sum(lambda k: a[m, k] * b[k, n]), *(each[n] for each in bias))


def fuse_activations(graph: Graph, roots: tuple[str, ...]) -> Graph:
    """The graph in which every activation that is the only reader of its product is fused with
    it.

    The first call describes the type `FUSED` to this process.
    """
    if operator_type(FUSED).description is None:
        describe(FUSED)(_fused)
    uses = Counter(t for operator in graph for t in operator.inputs)
    operators: dict[str, Operator] = {}
    for name, operator in graph.operators.items():
        parts = _parts(graph, operator, uses)
        if parts is None:
            operators[name] = operator
            continue
        product, bias = parts
        inputs = (*product.inputs, *bias)
        operators[name] = Operator(
            name,
            FUSED,
            inputs,
            tuple(graph.spec(tensor) for tensor in inputs),
            operator.outputs,
            {"T": operator.outputs[0].dtype},
            synthetic=True,
        )
    found = needed(operators, roots)
    assert found is not None, "nothing was put anywhere else"
    return found


def _parts(
    graph: Graph, operator: Operator, uses: Counter[TensorName]
) -> tuple[Operator, tuple[TensorName, ...]] | None:
    """The product that an activation reads, and its bias if there is one."""
    if operator.type not in _ACTIVATIONS or uses[operator.inputs[0]] > 1:
        return None
    bias: tuple[TensorName, ...] = ()
    maker = graph[operator.inputs[0].operator]
    if maker.type == "BiasAdd":
        if uses[maker.inputs[0]] > 1:
            return None
        maker, bias = graph[maker.inputs[0].operator], (maker.inputs[1],)
    turned = maker.attributes.get("transpose_a") or maker.attributes.get("transpose_b")
    return (maker, bias) if maker.type == "MatMul" and not turned else None


class FusedPrices(ClusterCostModel):
    """A cluster's costs, where a fused operator's backward pass is that of its parts.

    Forward the product's kernel adds the bias and applies the activation. Backward no kernel fuses
    them: the activation's gradient passes over the output, the gradients by both factors are
    products, and the bias's gradient is a sum over the output.
    """

    __slots__ = ()

    times_by_amounts: ClassVar[bool] = False  # the factors' shapes matter

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """See `tensoropt.cost.model.CostModel`."""
        if work.operator != FUSED or not work.differentiated_inputs:
            return super().operator_nanoseconds(work)
        factors = min(work.differentiated_inputs, 2)
        rest = work.differentiated_inputs - factors
        (rows, summed), (_, columns) = work.local_shapes[:2]
        element = work.bytes // max(1, rows * summed + summed * columns + rows * columns
                                    + sum(map(prod, work.local_shapes[2:])))  # fmt: skip
        output = rows * columns
        product = super().operator_nanoseconds(replace(work, differentiated_inputs=factors))
        activation = _passes(self, work, output, 3 * output * element)
        sums = _passes(self, work, output, output * element) if rest else 0
        return OperatorTime(product.forward, product.backward + activation + sums)


def _passes(cost: ClusterCostModel, work: OperatorWork, flops: int, bytes_: int) -> int:
    """Nanoseconds of an elementwise kernel."""
    kernel = OperatorWork("elementwise", work.dtype, flops, bytes_)
    return roofline_time(cost.cluster.device, kernel).forward


class _FusedRequest(Request):
    """A request whose fused operators have `FusedPrices`."""

    __slots__ = ()

    def cost_model(
        self, devices: int, mesh: Mesh | None = None, speed: float | None = None
    ) -> ClusterCostModel:
        """See `Request.cost_model`."""
        plain = super().cost_model(devices, mesh, speed)
        return FusedPrices(plain.cluster, plain.mesh, "execution")


def with_fused_prices(request: Request) -> Request:
    """The same request with right prices of fused operators."""
    return _FusedRequest(
        **{each.name: getattr(request, each.name) for each in fields(request) if each.init}
    )
