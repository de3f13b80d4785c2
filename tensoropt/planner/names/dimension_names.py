"""Names of the dimensions that operators divide, such as "batch", "columns" and "vocabulary".

A name follows a dimension from operator to operator: the descriptions say which dimensions of
inputs and outputs lie along the same index. The batch begins at the placeholders; columns and rows
are those of the weights; the other names are the roles of an operator's indices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import READS, leaders
from tensoropt.parallel.strategy import derivations_of
from tensoropt.tdl import Derivation

__all__ = ["BATCH", "dimension_names"]

BATCH = "batch"
_WINDOWED = {"y": "height", "x": "width", "z": "depth", "c": "channels", "co": "channels"}
_WINDOWED |= {"ci": "input channels", "dy": "window height", "dx": "window width"}
_ROLES: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...] = (
    (("Conv", "Depthwise", "MaxPool", "AvgPool", "FusedBatchNorm", "LRN"), _WINDOWED),
    (("SoftmaxCross", "SparseSoftmaxCross"), {"c": "classes", "j": "classes"}),
    (("Gather", "ResourceGather"), {"row": "vocabulary"}),
)
"""Prefixes of operator types, and the roles of their indices by name."""
_PRODUCTS = ("MatMul", "BatchMatMul", "Einsum", "Gather", "ResourceGather")
"""Prefixes of types of which one operand may be a weight, with rows and columns."""
_OF_IMAGES = ("height", "width", "channels")


def dimension_names(
    graph: Graph, batch_placeholders: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the indices of each operator's iteration space, by operator.

    An index without a role has a name by its place, such as "dimension 2".

    Args:
        graph: a step's graph.
        batch_placeholders: the placeholders whose first dimension is the batch.
    """
    return _Names(graph, batch_placeholders).by_operator()


class _Names:
    """The names in one graph, followed forward, then back to the weights."""

    def __init__(self, graph: Graph, batch_placeholders: Collection[str]) -> None:
        self._graph = graph
        self._batch_placeholders = batch_placeholders
        self._derivations = derivations_of(graph)
        self._of_tensor: dict[TensorName, tuple[str, ...]] = {}
        self._weights: set[TensorName] = set()
        self._of_index: dict[str, list[str]] = {}

    def by_operator(self) -> dict[str, tuple[str, ...]]:
        """Return the names by operator."""
        for operator in self._graph:
            self._forward(operator)
        backwards = list(self._graph)[::-1]
        for operator in backwards:
            self._back(operator)
        for name, leader in leaders(self._graph).items():
            if len(self._of_index[name]) == len(self._of_index[leader]):
                pairs = zip(self._of_index[name], self._of_index[leader], strict=True)
                self._of_index[name] = [own or led for own, led in pairs]
        for operator in self._graph:  # what follows gradients, as an optimizer spelled out
            self._after(operator)
        for operator in backwards:
            self._back(operator)
        return {
            name: tuple(given or f"dimension {n + 1}" for n, given in enumerate(names))
            for name, names in self._of_index.items()
        }

    def _forward(self, operator: Operator) -> None:
        """Name an operator's indices after its inputs' dimensions and its own roles."""
        derivation = self._derivations[operator.name]
        names = [self._index(operator, derivation, n) for n in range(len(derivation.indices))]
        if operator.is_placeholder and operator.name in self._batch_placeholders:
            names = _fed(operator)[: len(names)]
        self._of_index[operator.name] = names
        same = operator.type in READS and bool(operator.inputs)
        is_weight = operator.is_variable or (same and operator.inputs[0] in self._weights)
        for number, dims in enumerate(derivation.outputs):
            tensor = TensorName(operator.name, number)
            if is_weight:
                self._weights.add(tensor)
            self._of_tensor[tensor] = tuple("" if n is None else names[n] for n in dims)

    def _index(self, operator: Operator, derivation: Derivation, n: int) -> str:
        index = derivation.indices[n]
        found: list[tuple[str, int]] = []  # names in the inputs, with the extents there
        for tensor, dims, shape in zip(
            operator.inputs, derivation.inputs, derivation.input_shapes, strict=False
        ):
            names = self._of_tensor.get(tensor, ())
            found += [(a, e) for a, i, e in zip(names, dims, shape, strict=False) if i == n and a]
        if any(name == BATCH for name, _ in found):
            return BATCH
        for prefixes, roles in _ROLES:
            if operator.type.startswith(prefixes) and index.name in roles:
                return roles[index.name]
        if operator.type.startswith(_PRODUCTS) and (role := self._of_weight(operator, n)):
            return role
        if not found:
            return "columns" if operator.type == "MatMul" and index.name == "n" else ""
        name, extent = found[0]
        if operator.type == "Reshape" and name in ("columns", "heads", *_OF_IMAGES):
            after = [
                size
                for dims, shape in zip(derivation.outputs, derivation.output_shapes, strict=True)
                for i, size in zip(dims, shape, strict=True)
                if i == n
            ]
            if after and after[0] != extent:
                is_of_image = name in _OF_IMAGES
                return "columns" if after[0] > extent else name if is_of_image else "heads"
        return name

    def _of_weight(self, operator: Operator, n: int) -> str:
        """Return the role of an index of a product with a weight; empty if it has none."""
        derivation = self._derivations[operator.name]
        operands = list(zip(operator.inputs, derivation.inputs, strict=False))
        in_weights = {i for t, dims in operands if t in self._weights for i in dims}
        in_others = {i for t, dims in operands if t not in self._weights for i in dims}
        if n not in in_weights:
            return ""
        if derivation.indices[n].reducer is not None:
            return "" if any(name == "heads" for name in self._others(operator, n)) else "rows"
        columns = [
            i
            for i, index in enumerate(derivation.indices)
            if i in in_weights - in_others and index.reducer is None
        ]
        if n not in columns:
            return ""
        return "heads" if len(columns) == 2 and n == columns[0] else "columns"

    def _others(self, operator: Operator, n: int) -> list[str]:
        """Return the names of an index in the operands that are no weights."""
        dims = self._derivations[operator.name].inputs
        return [
            name
            for tensor, numbers in zip(operator.inputs, dims, strict=False)
            for name, i in zip(self._of_tensor.get(tensor, ()), numbers, strict=False)
            if i == n and tensor not in self._weights
        ]

    def _after(self, operator: Operator) -> None:
        """Name the indices that have no name after the operators that are read."""
        names = self._of_index[operator.name]
        dims = self._derivations[operator.name].inputs
        for tensor, numbers in zip(operator.inputs, dims, strict=False):
            of_tensor = self._derivations[tensor.operator].outputs[tensor.index : tensor.index + 1]
            for made, n in zip(next(iter(of_tensor), ()), numbers, strict=False):
                if n is not None and made is not None and not names[n]:
                    names[n] = self._of_index[tensor.operator][made]

    def _back(self, operator: Operator) -> None:
        """Name the dimensions that an operator reads, where their producer has no name."""
        derivation, names = self._derivations[operator.name], self._of_index[operator.name]
        for tensor, dims in zip(operator.inputs, derivation.inputs, strict=False):
            producer, unnamed = self._derivations[tensor.operator], self._of_index[tensor.operator]
            if tensor.index >= len(producer.outputs):
                continue
            for n, index in zip(dims, producer.outputs[tensor.index], strict=False):
                if n is not None and index is not None and not unnamed[index]:
                    unnamed[index] = names[n]


def _fed(operator: Operator) -> list[str]:
    """Return the names of the dimensions of a placeholder whose first dimension is the batch."""
    spec = operator.outputs[0]
    rest = [""] * (len(spec.shape) - 1)
    if len(rest) == 3:
        rest = list(_OF_IMAGES)
    elif len(rest) == 1:
        rest = ["positions" if "int" in spec.dtype else "features"]
    return [BATCH, *rest]
