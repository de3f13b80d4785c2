"""Simplification of rewritten graphs: nested concatenations and splits become one operator, and
products read transposed factors themselves.

Substitutions have two arguments, so three products that share a factor are merged two by two. The
nested operators that result become one operator, because concatenation is associative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.transformations.rewritten.needed import needed
from tensoropt.transformations.rewritten.parts import whole_numbers

__all__ = ["join_nested", "merge_equal"]


def join_nested(graph: Graph, roots: Collection[str]) -> Graph:
    """The graph with nested operators of the rewriting joined into one.

    Args:
        graph: a graph after a substitution.
        roots: the operators that are run or fetched, which stay.
    """
    inner = {
        tensor.operator
        for operator in graph
        if operator.synthetic and operator.type in _JOINS
        for tensor in operator.inputs
        if graph[tensor.operator].type == _JOINS[operator.type]
    }
    if not inner:
        return graph
    uses = Counter(t for operator in graph for t in operator.inputs if t.operator in inner)
    replacements: dict[TensorName, TensorName] = {}
    operators: dict[str, Operator] = {}
    for name, operator in graph.operators.items():
        changed = operator
        if replacements:
            inputs = tuple(replacements.get(tensor, tensor) for tensor in operator.inputs)
            changed = operator if inputs == operator.inputs else replace(operator, inputs=inputs)
        if changed.synthetic and changed.type == "ConcatV2":
            changed = _flat_concat(operators, changed, uses)
        if changed.synthetic and changed.type in _TURNED:
            changed = _reading_turned(operators, changed)
        if changed.synthetic and changed.type == "SplitV":
            merged = _flat_split(operators, changed, uses[operator.inputs[0]])
            if merged is not None:
                operators[merged.name] = merged
                _renumber(replacements, operators, graph[merged.name], changed)
                continue
        operators[name] = changed
    if (
        len(operators) == len(graph)
        and not replacements
        and all(operators[name] is graph[name] for name in operators)
    ):
        return graph
    joined = needed(operators, roots)
    assert joined is not None, "readers of parts still come after the split"
    return joined


def merge_equal(graph: Graph, roots: Collection[str]) -> Graph:
    """The graph with equal operators of the rewriting merged into one.

    For example, weights that are split in each step of a recurrence are split once.

    Args:
        graph: a graph after a substitution.
        roots: the operators that are run or fetched, which stay.
    """
    kinds = Counter(operator.type for operator in graph if operator.synthetic)
    if all(kinds[type_] < 2 for type_ in _MERGED):
        return graph
    first: dict[Hashable, str] = {}
    replacements: dict[str, str] = {}
    operators: dict[str, Operator] = {}
    for name, operator in graph.operators.items():
        changed = operator
        if replacements and any(tensor.operator in replacements for tensor in operator.inputs):
            inputs = (
                TensorName(replacements.get(t.operator, t.operator), t.index)
                for t in operator.inputs
            )
            changed = replace(operator, inputs=tuple(inputs))
        operators[name] = changed
        if changed.synthetic and changed.inputs and name not in roots and changed.type in _MERGED:
            values = tuple(
                tensor if spec.value is None else spec.value.tobytes()
                for tensor, spec in zip(changed.inputs, changed.input_specs, strict=True)
            )
            attributes = tuple(sorted(changed.attributes.items()))
            key = changed.type, values, attributes, changed.control_inputs
            if first.setdefault(key, name) != name:
                replacements[name] = first[key]
    merged = needed(operators, roots) if replacements else graph
    assert merged is not None, "equal operators have the same inputs"
    return merged


_MERGED = frozenset(
    {"ConcatV2", "SplitV", "MatMul", "BatchMatMulV2", "GatherV2", "Reshape", "Transpose"}
)


_JOINS = {
    "ConcatV2": "ConcatV2",
    "SplitV": "SplitV",
    "MatMul": "Transpose",
    "BatchMatMulV2": "Transpose",
}
"""For each type of operator, the type of an input that is joined with it."""

_TURNED = {"MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y")}
"""For each type of product, the attributes that transpose its factors."""


def _reading_turned(operators: Mapping[str, Operator], product: Operator) -> Operator:
    """A product that transposes a factor itself, in place of a Transpose of the rewriting."""
    for number, attribute in enumerate(_TURNED[product.type]):
        before = operators[product.inputs[number].operator]
        rank = len(product.input_specs[number].shape)
        order = [*range(rank - 2), rank - 1, rank - 2]
        if before.synthetic and before.type == "Transpose":
            value = before.input_specs[1].value
            if value is not None and value.tolist() == order:
                inputs, specs = list(product.inputs), list(product.input_specs)
                inputs[number], specs[number] = before.inputs[0], before.input_specs[0]
                turned = not product.attributes.get(attribute, False)
                product = replace(
                    product,
                    inputs=tuple(inputs),
                    input_specs=tuple(specs),
                    attributes={**product.attributes, attribute: turned},
                )
    return product


def _flat_concat(
    operators: Mapping[str, Operator], operator: Operator, uses: Mapping[TensorName, int]
) -> Operator:
    """A concatenation with the arguments of inner concatenations that only it reads."""
    axis = _value(operator, -1)
    inputs: list[TensorName] = []
    for tensor in operator.inputs[:-1]:
        inner = operators[tensor.operator]
        joins = inner.synthetic and inner.type == "ConcatV2" and uses[tensor] == 1
        inputs += inner.inputs[:-1] if joins and _value(inner, -1) == axis else [tensor]
    if len(inputs) == len(operator.inputs) - 1:
        return operator
    specs = tuple(operators[t.operator].outputs[t.index] for t in inputs)
    return replace(
        operator,
        inputs=(*inputs, operator.inputs[-1]),
        input_specs=(*specs, operator.input_specs[-1]),
        attributes={**operator.attributes, "N": len(inputs)},
    )


def _flat_split(
    operators: Mapping[str, Operator], operator: Operator, uses: int
) -> Operator | None:
    """A split of a split's part, as one split into all parts; None if it has other readers."""
    tensor = operator.inputs[0]
    outer = operators[tensor.operator]
    if not (outer.synthetic and outer.type == "SplitV" and uses == 1):
        return None
    dim = _value(outer, 2)
    if dim != _value(operator, 2):
        return None
    outputs = [*outer.outputs]
    outputs[tensor.index : tensor.index + 1] = operator.outputs
    spec = whole_numbers([spec.shape[dim] for spec in outputs])
    return replace(
        outer,
        input_specs=(outer.input_specs[0], spec, outer.input_specs[2]),
        outputs=tuple(outputs),
        attributes={**outer.attributes, "num_split": len(outputs), "Tlen": spec.dtype},
    )


def _renumber(
    replacements: dict[TensorName, TensorName],
    operators: dict[str, Operator],
    before: Operator,
    inner: Operator,
) -> None:
    """Let readers of parts read the outputs of the joined split.

    Args:
        replacements: the new name of each renamed tensor of the graph; changed.
        operators: the new operators so far, with the joined split; changed.
        before: the split as it is in the graph.
        inner: the split of one of its parts, ``inner.inputs[0]``.
    """
    outer, part, more = before.name, inner.inputs[0].index, len(inner.outputs) - 1
    sizes, spec = operators[outer].inputs[1].operator, operators[outer].input_specs[1]
    operators[sizes] = replace(
        operators[sizes],
        outputs=(spec,),
        attributes={**operators[sizes].attributes, "dtype": spec.dtype},
    )

    def moved(tensor: TensorName) -> TensorName:
        later = tensor.operator == outer and tensor.index > part
        return TensorName(outer, tensor.index + more) if later else tensor

    for name, operator in operators.items():
        inputs = tuple(map(moved, operator.inputs))
        if inputs != operator.inputs:
            operators[name] = replace(operator, inputs=inputs)
    for number in range(len(before.outputs)):
        replacements.setdefault(TensorName(outer, number), TensorName(outer, number))
    for old in replacements:
        replacements[old] = moved(replacements[old])
    for number in range(len(inner.outputs)):
        replacements[TensorName(inner.name, number)] = TensorName(outer, part + number)


def _value(operator: Operator, number: int) -> int:
    value = operator.input_specs[number].value
    assert value is not None, "dimensions are constants in rewritten graphs"
    return int(value.reshape(()))
