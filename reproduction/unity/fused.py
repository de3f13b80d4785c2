"""Products and their activations as one operator, as TASO fuses them on one device (Figure 4a).

A fused operator reads and writes less. Its sum cannot be split over devices, because the activation
of a partial sum is not a part of the activation (Figure 2). Fused operators are priced and never
run: TensorFlow fuses operators on each rank that a plan leaves whole.
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
"""Type of an operator that is a `MatMul`, perhaps a bias, and an activation."""

_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh"})
_function = elementwise("function")


@describe(FUSED)
def fused(a: Operand, b: Operand, *bias: Operand) -> Any:
    """The description of the activation of a product, whose index of the sum cannot be split."""
    return lambda m, n: _function(Sum(lambda k: a[m, k] * b[k, n]), *(each[n] for each in bias))


def fuse_activations(graph: Graph, roots: tuple[str, ...]) -> Graph:
    """The graph in which every activation that is the only reader of its product is fused with
    it."""
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
