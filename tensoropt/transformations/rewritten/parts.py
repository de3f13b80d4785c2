"""Tensors that could be added to a graph: parts of concatenations and splits, operands of products.

A term concatenates two tensors. So a concatenation of five tensors matches, for example, as that of
the first two and the last three. These two joined tensors are not in the graph. The names that they
get here determine the operators that compute them. `with_tensors` adds these operators to a graph
if a substitution reads them.

====================  ==========================================================================
``c/inputs_i_j:0``    inputs i to j - 1 of the concatenation ``c``, which may itself be such a part
``s/outputs_i_j:n``   outputs i to j - 1 of the split ``s``, as one tensor; n is 0 if i is 0, else 1
``p/operand_n:0``     input n of the product ``p``, transposed as ``p`` reads it; for a depthwise
                      convolution, its filters with three dimensions
``r/shape_a_b:0``     the input of the reshape ``r``, with the shape [a, b]
====================  ==========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "constant_dim",
    "joined_inputs",
    "operand",
    "operator_of",
    "other_shape",
    "part_of",
    "split_outputs",
    "whole_numbers",
    "with_tensors",
]

_NAME = re.compile(r"(.+)/(inputs|outputs|operand|shape)_([\d_]+)")


def part_of(name: str) -> tuple[str, str, tuple[int, ...]] | None:
    """The operator, kind and numbers in the name of a part; None for other names."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return match[1], match[2], tuple(map(int, match[3].split("_")))


def joined_inputs(operator: Operator, start: int, stop: int) -> TensorName:
    """Some inputs of a concatenation, as one tensor."""
    if stop - start == 1:
        return operator.inputs[start]
    return TensorName(f"{operator.name}/inputs_{start}_{stop}", 0)


def split_outputs(name: str, start: int, stop: int) -> TensorName:
    """Some outputs of a split, as one tensor."""
    if stop - start == 1:
        return TensorName(name, start)
    return TensorName(f"{name}/outputs_{start}_{stop}", int(start > 0))


def operand(operator: Operator, number: int) -> TensorName:
    """An input of a product, in the layout that terms have."""
    return TensorName(f"{operator.name}/operand_{number}", 0)


def other_shape(operator: Operator, shape: tuple[int, ...]) -> TensorName:
    """The input of a reshape, with another shape."""
    return TensorName(f"{operator.name}/shape_{'_'.join(map(str, shape))}", 0)


def operator_of(graph: Graph, name: str) -> Operator | None:
    """The operator with a name: the graph's, or one that computes a part; None if there is none."""
    if name in graph:
        return graph[name]
    part = part_of(name)
    base = None if part is None else operator_of(graph, part[0])
    if part is None or base is None:
        return None
    _, kind, numbers = part
    match kind:
        case "inputs" if base.type == "ConcatV2" and len(numbers) == 2:
            return _joined(name, base, *numbers)
        case "outputs" if base.type in ("Split", "SplitV") and len(numbers) == 2:
            return _split(name, base, *numbers)
        case "operand" if len(numbers) == 1 and numbers[0] < len(base.inputs):
            return _operand(name, base, numbers[0])
        case "shape" if base.type == "Reshape":
            return _reshape(name, base.inputs[0], base.input_specs[0], numbers)
    return None


def with_tensors(graph: Graph, tensors: Iterable[TensorName]) -> Graph:
    """The graph with operators that compute the missing ones of some tensors."""
    new: dict[str, Operator] = {}
    for tensor in tensors:
        operator = None if tensor.operator in graph else operator_of(graph, tensor.operator)
        if operator is not None:
            new |= with_constants(operator)
    if not new:
        return graph
    operators: dict[str, Operator] = {}
    waiting = dict(new)

    def add_ready() -> None:
        for name, operator in list(waiting.items()):
            if all(tensor.operator in operators for tensor in operator.inputs):
                operators[name] = waiting.pop(name)

    add_ready()
    for name, operator in graph.operators.items():
        operators[name] = operator
        if waiting:
            add_ready()
    return Graph(operators)


def with_constants(operator: Operator) -> dict[str, Operator]:
    """A part's operator and the constants that it reads, constants first."""
    constants = {}
    for tensor, spec in zip(operator.inputs, operator.input_specs, strict=True):
        if spec.value is not None and tensor.operator.startswith(f"{operator.name}/"):
            constants[tensor.operator] = Operator(
                tensor.operator, "Const", (), (), (spec,), {"dtype": spec.dtype}, synthetic=True
            )
    return {**constants, operator.name: operator}


def _joined(name: str, base: Operator, start: int, stop: int) -> Operator | None:
    dim, count = constant_dim(base, -1), len(base.inputs) - 1
    if dim is None or not 0 <= start < stop - 1 < count:
        return None
    specs = base.input_specs[start:stop]
    shape = list(specs[0].shape)
    shape[dim] = sum(spec.shape[dim] for spec in specs)
    return Operator(
        name,
        "ConcatV2",
        (*base.inputs[start:stop], base.inputs[-1]),
        (*specs, base.input_specs[-1]),
        (TensorSpec(tuple(shape), specs[0].dtype),),
        {**base.attributes, "N": stop - start},
        synthetic=True,
    )


def _split(name: str, base: Operator, start: int, stop: int) -> Operator | None:
    data, axis = (0, 2) if base.type == "SplitV" else (1, 0)
    dim, count = constant_dim(base, axis), len(base.outputs)
    if dim is None or not 0 <= start < stop - 1 < count or stop - start == count:
        return None
    bounds = sorted({0, start, stop, count})
    sizes = tuple(sum(spec.shape[dim] for spec in base.outputs[a:b]) for a, b in pairwise(bounds))
    whole = base.input_specs[data]
    outputs = tuple(
        TensorSpec((*whole.shape[:dim], size, *whole.shape[dim + 1 :]), whole.dtype)
        for size in sizes
    )
    given = (_number(name, "sizes", sizes), _number(name, "axis", dim))
    return Operator(
        name,
        "SplitV",
        (base.inputs[data], *(tensor for tensor, _ in given)),
        (whole, *(spec for _, spec in given)),
        outputs,
        {"T": whole.dtype, "num_split": len(sizes), "Tlen": given[0][1].dtype},
        synthetic=True,
    )


def _operand(name: str, base: Operator, number: int) -> Operator | None:
    tensor, spec = base.inputs[number], base.input_specs[number]
    if base.type == "DepthwiseConv2dNative":
        if number != 1 or spec.shape[3] != 1:
            return None
        return _reshape(name, tensor, spec, spec.shape[:3])
    if base.type not in ("MatMul", "BatchMatMulV2") or len(spec.shape) < 2:
        return None
    order = (*range(len(spec.shape) - 2), len(spec.shape) - 1, len(spec.shape) - 2)
    permutation, value = _number(name, "perm", order)
    return Operator(
        name,
        "Transpose",
        (tensor, permutation),
        (spec, value),
        (TensorSpec(tuple(spec.shape[dim] for dim in order), spec.dtype),),
        {"T": spec.dtype, "Tperm": "int32"},
        synthetic=True,
    )


def _reshape(
    name: str, tensor: TensorName, spec: TensorSpec, shape: tuple[int, ...]
) -> Operator | None:
    if prod(shape) != prod(spec.shape):
        return None
    wanted, value = _number(name, "shape", shape)
    return Operator(
        name,
        "Reshape",
        (tensor, wanted),
        (spec, value),
        (TensorSpec(tuple(shape), spec.dtype),),
        {"T": spec.dtype, "Tshape": value.dtype},
        synthetic=True,
    )


def _number(name: str, what: str, value: int | tuple[int, ...]) -> tuple[TensorName, TensorSpec]:
    return TensorName(f"{name}/{what}", 0), whole_numbers(value)


def whole_numbers(value: int | Sequence[int]) -> TensorSpec:
    """A constant of whole numbers: int32, or int64 if one is too large for that."""
    values = np.array(value, np.int64)
    dtype = "int32" if np.all(np.abs(values) <= np.iinfo(np.int32).max) else "int64"
    return TensorSpec(values.shape, dtype, values.astype(dtype))


def constant_dim(operator: Operator, number: int) -> int | None:
    """The dimension in a constant input, counted from 0; None if the input is not constant."""
    value = operator.input_specs[number].value
    return None if value is None else int(value.reshape(())) % len(operator.outputs[0].shape)
