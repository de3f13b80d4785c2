"""The kinds of splits of a strategy, read from its configurations and the operators' indices."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.tied_operators import leaders
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.keeping import Keeping
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy, derivation_under
from tensoropt.tdl import Derivation

__all__ = ["KEPT_KINDS", "KINDS", "kept_kinds", "split_kinds"]

KEPT_KINDS = ("sharded", "before", "after", "recomputed")
"""A variable stored in pieces and gathered where it is read; a tensor kept before resharding only,
and after it only; an operator computed again in the backward pass."""

KINDS = (
    *("batch", "spatial", "halo", "vocabulary", "class", "head", "reduction", "redundant"),
    *KEPT_KINDS,
)
"""Kinds of splits: an activation's first dimension; an image's height or width; the same where
windows overlap, so that halos are exchanged; the rows of a gathered table; the classes of a softmax
cross entropy; the heads of an attention; an index that is reduced over; and devices along some axis
that do the same work. Then `KEPT_KINDS`."""

_WINDOWED = frozenset({"Conv2D", "MaxPool", "AvgPool", "FusedBatchNormV3", "DepthwiseConv2dNative"})
_GATHERS = frozenset({"Gather", "GatherV2", "ResourceGather"})
_ENTROPIES = frozenset({"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"})


def split_kinds(
    graph: Graph, configurations: Mapping[str, Configuration], mesh: Mesh
) -> frozenset[str]:
    """The `KINDS` that occur in a strategy."""
    found: set[str] = set()
    activations = _fed_operators(graph)
    for name, configuration in configurations.items():
        operator = graph[name]
        derivation = derivation_under(operator, configuration)
        if operator.is_placeholder or len(derivation.indices) < 2:
            continue
        if sum(map(len, configuration.splits)) < len(mesh.axes):
            found.add("redundant")
        if not any(configuration.splits):
            continue
        indexed = zip(derivation.indices, configuration.splits, strict=True)
        if any(axes and index.reducer is not None for index, axes in indexed):
            found.add("reduction")
        found |= _of_operator(operator, derivation, configuration)
        if name in activations and _is_split(configuration, derivation.outputs, 0, 0):
            found.add("batch")
    return frozenset(found)


def kept_kinds(strategy: Strategy) -> frozenset[str]:
    """The `KEPT_KINDS` that have an effect in a strategy."""
    graph, keeping = strategy.graph, Keeping(strategy)
    differentiated, tied = differentiated_inputs(graph), leaders(graph)
    found = {"recomputed" for name in differentiated if keeping.kept(name) == "recomputed"}
    for operator in graph:
        for number in differentiated.get(operator.name, ()):
            tensor = operator.inputs[number]
            if not keeping.moved(operator, number):
                continue
            variable = graph[tied[tensor.operator]].is_variable
            if variable and any(strategy.output_slot(tensor).forward.dims):
                found.add("sharded")
            found.add(keeping.kept(tensor.operator))
    return frozenset(found & set(KEPT_KINDS))


def _of_operator(
    operator: Operator, derivation: Derivation, configuration: Configuration
) -> set[str]:
    found = set()
    if operator.type in _WINDOWED and any(
        _is_split(configuration, derivation.outputs, 0, dim) for dim in (1, 2)
    ):
        found.add("spatial")
        if operator.type != "FusedBatchNormV3" and any(
            axes and index.spelled_out
            for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        ):
            found.add("halo")
    if operator.type in _GATHERS and _is_split(configuration, derivation.inputs, 0, 0):
        found.add("vocabulary")
    if operator.type in _ENTROPIES and _is_split(configuration, derivation.inputs, 0, 1):
        found.add("class")
    if operator.type == "Einsum":
        inputs = str(operator.attributes["equation"]).partition("->")[0].split(",")
        for number, letters in enumerate(inputs):
            if "h" in letters and _is_split(
                configuration, derivation.inputs, number, letters.index("h")
            ):
                found.add("head")
    return found


def _is_split(
    configuration: Configuration,
    dims: tuple[tuple[int | None, ...], ...],
    tensor: int,
    dim: int,
) -> bool:
    """Whether a configuration splits one dimension of one input or output."""
    if tensor >= len(dims) or dim >= len(dims[tensor]):
        return False
    index = dims[tensor][dim]
    return index is not None and bool(configuration.splits[index])


def _fed_operators(graph: Graph) -> set[str]:
    """The forward operators whose first input comes from a placeholder. In the compared models,
    their first dimension is the batch, or the batch times the steps."""
    fed: set[str] = set()
    for operator in graph:
        if operator.gradient is not None or operator.is_variable:
            continue
        reads = {tensor.operator for tensor in operator.inputs}
        if operator.is_placeholder or reads & fed:
            fed.add(operator.name)
    return fed
