"""Products and their activations as one operator, as TASO fuses them on one device (Figure 4a).

A fused operator reads and writes less, and its sum cannot be split over devices: the activation of
a part of a sum is not a part of the activation (Figure 2). It is priced, and never run: TensorFlow
fuses on each rank by itself what a plan has left whole.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tdl.expression import Operand, Sum, elementwise
from tensoropt.tdl.registry import describe
from tensoropt.transformations.rewritten.needed import needed

__all__ = ["FUSED", "fuse_activations"]

FUSED = "FusedMatMulActivation"
"""Type of a `MatMul`, perhaps with a bias, and an activation."""

_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh"})
_function = elementwise("function")


@describe(FUSED)
def fused(a: Operand, b: Operand, *bias: Operand) -> Any:
    """The activation of a product: nothing that a sum over devices could be taken of."""
    return lambda m, n: _function(Sum(lambda k: a[m, k] * b[k, n]), *(each[n] for each in bias))


def fuse_activations(graph: Graph, roots: tuple[str, ...]) -> Graph:
    """The graph with every activation in the product that it is the only reader of."""
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
    """The product of an activation, and its bias if it has one."""
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
