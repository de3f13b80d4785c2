"""Operators of a logical graph as operators of terms.

An operator of TensorFlow has a view as one of `tensoropt.rewriting.operators` only if it computes
the same: a sum of equal shapes, a lookup of rows of a matrix by a vector of numbers. Terms have one
convolution, one pool of each kind and one elementwise function. Their proofs use only properties
that these operators have with any strides, padding and window. So each of them represents one kind
of operator in a match (`View.kind`), the same in all its places.

A term's operator may read a tensor that could be added to the graph, see
`tensoropt.transformations.rewritten.parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.transformations.rewritten.parts import (
    constant_dim,
    joined_inputs,
    operand,
    operator_of,
    other_shape,
    part_of,
    split_outputs,
)

__all__ = [
    "COMMUTATIVE",
    "POINTWISE_TYPES",
    "TYPES_WITH_VIEWS",
    "Kind",
    "View",
    "types_of",
    "views",
]

COMMUTATIVE = frozenset({"add", "mul"})
"""Operators of terms whose two arguments may be exchanged."""

POINTWISE_TYPES = frozenset(
    {"Elu", "Erf", "Exp", "Relu", "Relu6", "Selu", "Sigmoid", "Softplus"}
) | {
    "Softsign",
    "Square",
    "Tanh",
}
"""Types of elementwise functions. Terms have ``relu`` for all of them, because its proofs use only
properties that all of them have."""

Kind = tuple[str, tuple[tuple[str, object], ...]]
"""TensorFlow's type and attributes of an operator, where terms have one operator for several."""

_MOST_CUTS = 6
"""A concatenation of at most this many inputs has a view for each cut; a longer one only for cuts
between different types of producers."""

_MOST_DIMS = 4  # of a tensor that is transposed or reshaped


@dataclass(frozen=True, slots=True)
class View:
    """An operator of a graph as an operator of terms.

    Attributes:
        operator: name of the operator of terms.
        parameters: its whole numbers.
        arguments: the tensors that it is applied to.
        kind: TensorFlow's operator, if terms have one operator for several; else None.
    """

    operator: str
    parameters: tuple[int, ...]
    arguments: tuple[TensorName, ...]
    kind: Kind | None = None


def views(graph: Graph, tensor: TensorName) -> Iterator[View]:
    """The views of the operator that computes a tensor; none if terms cannot express it."""
    operator = operator_of(graph, tensor.operator)
    if operator is None or operator.control_inputs or not _is_known(operator):
        return
    part = part_of(tensor.operator) if tensor.operator not in graph else None
    if part is not None and part[1] == "outputs":
        yield from _split_between(graph[part[0]], *part[2])
    elif operator.type == "ConcatV2":
        yield from _concat(graph, operator)
    elif operator.type in _VIEWS:
        yield from _VIEWS[operator.type](operator, tensor.index)
    if operator.type in POINTWISE_TYPES:
        yield View("relu", (), operator.inputs, (operator.type, ()))


def _is_known(operator: Operator) -> bool:
    specs = (*operator.input_specs, *operator.outputs)
    return all(extent >= 0 for spec in specs for extent in spec.shape) and all(
        spec.dtype.startswith(("float", "bfloat")) for spec in operator.outputs
    )


def _matmul(operator: Operator, _: int) -> Iterator[View]:
    attributes = operator.attributes
    turned = attributes.get("transpose_a"), attributes.get("transpose_b")
    yield View("matmul", (), _turned(operator, *turned))


def _batch_matmul(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    attributes = operator.attributes
    if len(left) == len(right) == 3 and left[0] == right[0]:
        turned = attributes.get("adj_x"), attributes.get("adj_y")
        yield View("batch_matmul", (), _turned(operator, *turned))


def _turned(operator: Operator, *turned: object) -> tuple[TensorName, ...]:
    """The factors of a product, transposed if it reads them transposed."""
    return tuple(
        operand(operator, number) if is_turned else operator.inputs[number]
        for number, is_turned in enumerate(turned)
    )


def _sum(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    if left == right:
        yield View("add", (), operator.inputs)
    elif left and right == left[-1:]:
        yield View("bias_add", (), operator.inputs)


def _bias(operator: Operator, _: int) -> Iterator[View]:
    if operator.attributes.get("data_format", "NHWC") == "NHWC":
        yield View("bias_add", (), operator.inputs)


def _product(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    if left == right:
        yield View("mul", (), operator.inputs)
    elif right == ():
        yield View("scale", (), operator.inputs)
    elif left == ():
        yield View("scale", (), operator.inputs[::-1])


def _concat(graph: Graph, operator: Operator) -> Iterator[View]:
    dim, inputs = constant_dim(operator, -1), operator.inputs[:-1]
    if dim is None:
        return
    makers = [graph[tensor.operator].type for tensor in inputs]
    for cut in range(1, len(inputs)):
        ends = cut in (1, len(inputs) - 1) or len(inputs) <= _MOST_CUTS
        if ends or makers[cut - 1] != makers[cut]:
            parts = joined_inputs(operator, 0, cut), joined_inputs(operator, cut, len(inputs))
            yield View("concat", (dim,), parts)


def _split(operator: Operator, index: int) -> Iterator[View]:
    yield from _split_between(operator, index, index + 1)


def _split_between(operator: Operator, start: int, stop: int) -> Iterator[View]:
    """Views of some consecutive outputs of a split: its first, its last, or inner ones."""
    data, axis = (0, 2) if operator.type == "SplitV" else (1, 0)
    dim, count = constant_dim(operator, axis), len(operator.outputs)
    if dim is None or count == 1:
        return
    if start == 0:
        yield View("split", (dim, 0), (operator.inputs[data],))
    elif stop == count:
        yield View("split", (dim, 1), (operator.inputs[data],))
    else:
        yield View("split", (dim, 0), (split_outputs(operator.name, start, count),))
        yield View("split", (dim, 1), (split_outputs(operator.name, 0, stop),))


def _convolution(operator: Operator, _: int) -> Iterator[View]:
    kind = _images(operator)
    # The filters of a grouped convolution have only the channels of one group.
    if kind and operator.input_specs[0].shape[3] == operator.input_specs[1].shape[2]:
        yield View("conv", (), operator.inputs, kind)


def _depthwise(operator: Operator, _: int) -> Iterator[View]:
    kind = _images(operator)
    if kind and operator.input_specs[1].shape[3] == 1:
        yield View("depthwise_conv", (), (operator.inputs[0], operand(operator, 1)), kind)


def _pool(name: str) -> Callable[[Operator, int], Iterator[View]]:
    def view(operator: Operator, _: int) -> Iterator[View]:
        kind = _images(operator)
        window: object = operator.attributes.get("ksize")
        if kind and isinstance(window, tuple) and window[0] == window[3] == 1:
            yield View(name, (), operator.inputs, kind)

    return view


def _images(operator: Operator) -> Kind | None:
    """The kind of an operator on images, [b, h, w, c]; None if terms do not have it."""
    given = operator.attributes
    attributes = {
        name: given.get(name, default)
        for name, default in (
            ("ksize", None),
            ("strides", (1, 1, 1, 1)),
            ("dilations", (1, 1, 1, 1)),
            ("padding", None),
            ("data_format", "NHWC"),
        )
        if name in given or default is not None
    }
    known = attributes["data_format"] == "NHWC" and attributes.get("padding") in ("SAME", "VALID")
    if operator.type in ("AvgPool", "MaxPool"):
        attributes.pop("dilations")
    return (operator.type, tuple(attributes.items())) if known else None


def _softmax(operator: Operator, _: int) -> Iterator[View]:
    yield View("softmax", (), operator.inputs)


def _embedding(operator: Operator, _: int) -> Iterator[View]:
    table, rows = operator.input_specs[:2]
    if looks_up_rows(operator, 0) and len(table.shape) == 2 and len(rows.shape) == 1:
        yield View("embedding", (), operator.inputs[:2])


def _transpose(operator: Operator, _: int) -> Iterator[View]:
    order = operator.input_specs[1].value
    if order is not None and order.size <= _MOST_DIMS:
        yield View("transpose", tuple(map(int, order)), operator.inputs[:1])


def _reshape(operator: Operator, _: int) -> Iterator[View]:
    """Views of a reshape that merges or splits a dimension; of a larger reshape, its last step."""
    given, wanted = operator.input_specs[0].shape, operator.outputs[0].shape
    if given == wanted or max(len(given), len(wanted)) > _MOST_DIMS or 0 in wanted:
        return
    before = operator.inputs[0]
    for dim in range(len(wanted) - 1):
        merged = (*wanted[:dim], wanted[dim] * wanted[dim + 1], *wanted[dim + 2 :])
        if merged == given:
            yield View("unflatten", (dim,), (before,))
        elif _is_between(given, merged, wanted):
            yield View("unflatten", (dim,), (other_shape(operator, merged),))
    for dim in range(len(given) - 1):
        merged = (*given[:dim], given[dim] * given[dim + 1], *given[dim + 2 :])
        if merged == wanted:
            yield View("flatten", (dim,), (before,))


def _is_between(given: tuple[int, ...], middle: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a reshape has an intermediate shape that only splits given dimensions."""
    return 1 not in wanted and len(middle) >= len(given) and _products(given) <= _products(middle)


def _products(shape: tuple[int, ...]) -> frozenset[int]:
    return frozenset(prod(shape[:number]) for number in range(len(shape) + 1))


_VIEWS: Mapping[str, Callable[[Operator, int], Iterator[View]]] = {
    "Add": _sum,
    "AddV2": _sum,
    "AvgPool": _pool("avg_pool"),
    "BatchMatMulV2": _batch_matmul,
    "BiasAdd": _bias,
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "GatherV2": _embedding,
    "MatMul": _matmul,
    "MaxPool": _pool("max_pool"),
    "Mul": _product,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Split": _split,
    "SplitV": _split,
    "Transpose": _transpose,
}

TYPES_WITH_VIEWS = frozenset({"ConcatV2", *_VIEWS}) | POINTWISE_TYPES
"""Types of operators that have views."""

_TYPES_OF: Mapping[str, tuple[str, ...]] = {
    "add": ("Add", "AddV2"),
    "avg_pool": ("AvgPool",),
    "batch_matmul": ("BatchMatMulV2",),
    "bias_add": ("Add", "AddV2", "BiasAdd"),
    "concat": ("ConcatV2",),
    "conv": ("Conv2D",),
    "depthwise_conv": ("DepthwiseConv2dNative",),
    "embedding": ("GatherV2",),
    "flatten": ("Reshape",),
    "matmul": ("MatMul",),
    "max_pool": ("MaxPool",),
    "mul": ("Mul",),
    "relu": tuple(sorted(POINTWISE_TYPES)),
    "scale": ("Mul",),
    "softmax": ("Softmax",),
    "split": ("Split", "SplitV"),
    "transpose": ("Transpose",),
    "unflatten": ("Reshape",),
}


def types_of(name: str) -> tuple[str, ...]:
    """TensorFlow's types of operators that can have a view as an operator of terms."""
    return _TYPES_OF.get(name, ())
