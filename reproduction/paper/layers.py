"""The outputs that layers keep, if layers are the operators, as in the paper's Table 1.

A bias, a scale or a mask is applied in place. A layer normalisation has one output. An LSTM's step
keeps its gates, its state and its output. Tensors of the optimizer are not kept.
"""

from __future__ import annotations

from math import prod

from tensoropt.graph.operator import Graph, Operator

__all__ = ["kept_by_layers"]

_IN_PLACE = frozenset({"AddV2", "BiasAdd", "Mul", "Sub"})
_KEPT_OF_A_STEP = frozenset({("AddV2", "Tanh"), ("Mul", "ConcatV2"), ("Mul", "Pack")})
"""In an LSTM's step: its state, which a tanh reads, and its output, which the next step joins
with its input, or the next layer reads."""


def kept_by_layers(graph: Graph) -> frozenset[str]:
    """The operators whose output is a layer's output, and is not applied in place or inside a
    layer."""
    consumers: dict[str, list[Operator]] = {operator.name: [] for operator in graph}
    backward: set[str] = set()
    kept = set()
    for operator in graph:  # in the order in which they run
        sources = {tensor.operator for tensor in operator.inputs}
        for source in sources:
            consumers[source].append(operator)
        if operator.gradient is not None or sources & backward:
            backward.add(operator.name)
    for operator in graph:
        if operator.name in backward:
            continue
        readers = [reader for reader in consumers[operator.name] if reader.name not in backward]
        layer = _normalisation(operator)
        if layer is not None:
            if all(_normalisation(reader) == layer for reader in readers):
                continue
        elif operator.name.startswith("lstm/layer"):
            pairs = {(operator.type, reader.type) for reader in readers}
            if operator.type != "MatMul" and not pairs & _KEPT_OF_A_STEP:
                continue
        elif operator.type in _IN_PLACE and _has_a_smaller_input(operator):
            continue
        kept.add(operator.name)
    return frozenset(kept)


def _normalisation(operator: Operator) -> str | None:
    """The name of the layer normalisation that has an operator."""
    scope, found, _ = operator.name.partition("/norm/")
    return scope if found else None


def _has_a_smaller_input(operator: Operator) -> bool:
    size = prod(operator.outputs[0].shape)
    return any(prod(spec.shape) < size for spec in operator.input_specs)
