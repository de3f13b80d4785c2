"""Which edges carry a gradient back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tensoropt.graph.operator import VARIABLE_TYPES, Graph, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.tdl import types_with

__all__ = ["differentiated_inputs", "sparse_tensors"]

_ENDS = types_with(gradient_stops=True) | VARIABLE_TYPES

# Operators whose registered gradient takes slices and gives slices, output by input.
_PASS_SLICES = types_with(value="same") | types_with(value="converted")


@per_graph
def differentiated_inputs(graph: Graph, only: int | None = None) -> Mapping[str, tuple[int, ...]]:
    """For each operator the inputs through which some gradient of the script flows.

    An input counts when it can be reached from an x of a recorded gradient and its operator can
    reach one of that gradient's ys, over floating-point tensors.

    Args:
        graph: the operators.
        only: number of the one call of ``tf.gradients`` that is looked at; all of them if None.
    """
    found: dict[str, tuple[int, ...]] = {}
    for call, (ys, xs) in _calls(graph).items():
        if only not in (None, call):
            continue
        reached = _reached(graph, xs)
        needed = [tensor.operator for tensor in ys]
        seen: set[str] = set()
        while needed:
            name = needed.pop()
            if name in seen:
                continue
            seen.add(name)
            numbers = reached.get(name)
            if numbers is None:
                continue
            others = found.get(name, ())
            found[name] = tuple(sorted({*numbers, *others})) if others else tuple(numbers)
            inputs = graph[name].inputs
            needed += [inputs[number].operator for number in numbers]
    return found


@per_graph
def sparse_tensors(graph: Graph) -> Mapping[int, frozenset[TensorName]]:
    """For each call the tensors whose gradient is sparse in the script.

    That by x is sparse only where everything is that it is the sum of: so it is for every tensor
    between x and where rows are looked up.
    """
    found: dict[int, set[TensorName]] = {}
    for operator in graph:
        tag = operator.gradient
        if tag is not None:
            of_call = found.setdefault(tag.call, set())
            of_call |= {tag.x} if tag.part != "dense" else set()
    for operator in graph:
        if operator.type not in _PASS_SLICES:
            continue
        for of_call in found.values():
            for number, tensor in enumerate(operator.inputs):
                if tensor in of_call:
                    of_call.add(TensorName(operator.name, number))
    return {call: frozenset(of_call) for call, of_call in found.items()}


def _calls(graph: Graph) -> dict[int, tuple[set[TensorName], set[TensorName]]]:
    calls: dict[int, tuple[set[TensorName], set[TensorName]]] = {}
    for operator in graph:
        if operator.gradient is not None:
            ys, xs = calls.setdefault(operator.gradient.call, (set(), set()))
            ys.update(operator.gradient.ys)
            xs.add(operator.gradient.x)
    return calls


def _reached(graph: Graph, xs: set[TensorName]) -> dict[str, list[int]]:
    """The operators that some tensors reach over inputs that carry a gradient, and the numbers of
    these inputs."""
    found: dict[str, list[int]] = {}
    makers = {tensor.operator for tensor in xs}
    for name, operator in graph.operators.items():
        if operator.type in _ENDS:
            continue
        numbers = [
            number
            for number, tensor in enumerate(operator.inputs)
            if (tensor.operator in found or (tensor.operator in makers and tensor in xs))
            and _has_gradient(operator.input_specs[number].dtype)
        ]
        if numbers:
            found[name] = numbers
    return found


@cache
def _has_gradient(dtype: str) -> bool:
    dtype = dtype.removesuffix("_ref")
    return dtype in ("resource", "variant", "bfloat16") or dtype.startswith(("float", "complex"))
