"""The inputs of operators through which gradients flow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tensoropt.graph.operator import VARIABLE_TYPES, Graph, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.tdl import types_with

__all__ = ["differentiated_inputs", "sparse_tensors"]

_ENDS = types_with(gradient_stops=True) | VARIABLE_TYPES

# Operators whose gradient function turns slices of output n into slices of input n.
_PASS_SLICES = types_with(value="same") | types_with(value="converted")


@per_graph
def differentiated_inputs(graph: Graph, only: int | None = None) -> Mapping[str, tuple[int, ...]]:
    """Return for each operator the inputs through which some gradient of the script flows.

    These inputs depend on an x of a gradient, and some y of that gradient depends on the operator,
    through floating-point tensors.

    Args:
        graph: the operators.
        only: number of one call of ``tf.gradients``; None for all calls.
    """
    inputs_of: dict[str, tuple[int, ...]] = {}
    for call, (ys, xs) in _calls(graph).items():
        if only not in (None, call):
            continue
        reached = _reached(graph, xs)
        needed = [tensor.operator for tensor in ys]
        visited: set[str] = set()
        while needed:
            name = needed.pop()
            if name in visited:
                continue
            visited.add(name)
            numbers = reached.get(name)
            if numbers is None:
                continue
            others = inputs_of.get(name, ())
            inputs_of[name] = tuple(sorted({*numbers, *others})) if others else tuple(numbers)
            inputs = graph[name].inputs
            needed += [inputs[number].operator for number in numbers]
    return inputs_of


@per_graph
def sparse_tensors(graph: Graph) -> Mapping[int, frozenset[TensorName]]:
    """Return for each call of ``tf.gradients`` the tensors whose gradient is sparse in the script.

    The gradient by x is sparse only if everything that is added to it is sparse. So the gradients
    of all tensors between x and the lookups of rows are sparse, too.
    """
    sparse: dict[int, set[TensorName]] = {}
    for operator in graph:
        tag = operator.gradient
        if tag is not None:
            of_call = sparse.setdefault(tag.call, set())
            of_call |= {tag.x} if tag.part != "dense" else set()
    for operator in graph if any(sparse.values()) else ():
        if operator.type not in _PASS_SLICES:
            continue
        for of_call in sparse.values():
            for number, tensor in enumerate(operator.inputs):
                if tensor in of_call:
                    of_call.add(TensorName(operator.name, number))
    return {call: frozenset(of_call) for call, of_call in sparse.items()}


def _calls(graph: Graph) -> dict[int, tuple[set[TensorName], set[TensorName]]]:
    calls: dict[int, tuple[set[TensorName], set[TensorName]]] = {}
    for operator in graph:
        if operator.gradient is not None:
            ys, xs = calls.setdefault(operator.gradient.call, (set(), set()))
            ys.update(operator.gradient.ys)
            xs.add(operator.gradient.x)
    return calls


def _reached(graph: Graph, xs: set[TensorName]) -> dict[str, list[int]]:
    """Return the operators that depend on some tensors through inputs that have a gradient.

    Each has the numbers of these inputs.
    """
    reached: dict[str, list[int]] = {}
    producers = {tensor.operator for tensor in xs}
    for name, operator in graph.operators.items():
        if not operator.inputs or operator.type in _ENDS:
            continue
        numbers = [
            number
            for number, tensor in enumerate(operator.inputs)
            if (tensor.operator in reached or (tensor.operator in producers and tensor in xs))
            and _has_gradient(operator.input_specs[number].dtype)
        ]
        if numbers:
            reached[name] = numbers
    return reached


@cache
def _has_gradient(dtype: str) -> bool:
    dtype = dtype.removesuffix("_ref")
    return dtype in ("resource", "variant", "bfloat16") or dtype.startswith(("float", "complex"))
