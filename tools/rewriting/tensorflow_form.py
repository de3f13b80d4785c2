"""Operators of terms as TensorFlow operators: one for each, several for layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.errors import GraphError
from tensoropt.rewriting.terms import Term
from tensoropt.tensor_spec import TensorSpec

__all__ = ["OP_TYPES", "Step", "steps_of"]

Shape = tuple[int, ...]

OP_TYPES: dict[str, str] = {
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "exp": "Exp",
    "erf": "Erf",
    "matmul": "MatMul",
    "batch_matmul": "BatchMatMulV2",
    "add": "AddV2",
    "mul": "Mul",
    "scale": "Mul",
    "bias_add": "BiasAdd",
    "softmax": "Softmax",
    "batch_norm": "FusedBatchNormV3",
    "concat": "ConcatV2",
    "split": "SplitV",
    "transpose": "Transpose",
    "flatten": "Reshape",
    "unflatten": "Reshape",
    "reduce_sum": "Sum",
    "embedding": "GatherV2",
    "conv": "Conv2D",
    "depthwise_conv": "DepthwiseConv2dNative",
    "avg_pool": "AvgPool",
    "max_pool": "MaxPool",
}
"""TensorFlow's type of each operator that is one TensorFlow operator."""

_SAME = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
_POOL = {**_SAME, "ksize": [1, 3, 3, 1]}
_ATTRIBUTES: dict[str, Mapping[str, object]] = {
    "conv": _SAME,
    "depthwise_conv": _SAME,
    "avg_pool": _POOL,
    "max_pool": _POOL,
    "batch_norm": {"is_training": True, "data_format": "NHWC"},
    "split": {"num_split": 2},
}


@dataclass(frozen=True)
class Step:
    """One TensorFlow operator.

    Attributes:
        op_type: its type.
        inputs: numbers of the term's arguments followed by those of earlier steps; or constants.
        shapes: shapes of its outputs.
        output: number of the used output.
        attributes: TensorFlow's attributes.
    """

    op_type: str
    inputs: tuple[int | TensorSpec, ...]
    shapes: tuple[Shape, ...]
    output: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)


def _constant(*numbers: int) -> TensorSpec:
    return TensorSpec((len(numbers),), "int32", np.array(numbers, np.int32))


def _number(number: int) -> TensorSpec:
    return TensorSpec((), "int32", np.array(number, np.int32))


def steps_of(term: Term, shapes: Sequence[Shape], output: Shape) -> tuple[Step, ...]:
    """The operators that compute a term's root; the last one computes its output.

    Args:
        term: the term, whose arguments are given.
        shapes: shapes of the arguments.
        output: shape of the term's output.

    Raises:
        GraphError: if there are none, as for operators that change placements.
    """
    special = _SPECIAL.get(term.operator)
    if special is not None:
        return special(term.parameters, shapes, output)
    if term.operator not in OP_TYPES:
        raise GraphError(
            f"terms are of operators that TensorFlow has. Got {term.operator!r}, which changes how "
            "a tensor lies, if it is one. Take what it is applied to."
        )
    constants: tuple[TensorSpec, ...] = ()
    match term.operator:
        case "concat" | "reduce_sum":
            constants = (_number(term.parameters[0]),)
        case "transpose":
            constants = (_constant(*term.parameters),)
        case "flatten" | "unflatten":
            constants = (_constant(*output),)
        case "embedding":
            constants = (_number(0),)
    inputs = (*range(len(shapes)), *constants)
    attributes = _ATTRIBUTES.get(term.operator, {})
    return (Step(OP_TYPES[term.operator], inputs, (output,), 0, attributes),)


def _split(parameters: Shape, shapes: Sequence[Shape], output: Shape) -> tuple[Step, ...]:
    dim, part = parameters
    rest = shapes[0][dim] - output[dim]
    sizes = (output[dim], rest) if part == 0 else (rest, output[dim])
    parts = tuple((*output[:dim], size, *output[dim + 1 :]) for size in sizes)
    inputs = (0, _constant(*sizes), _number(dim))
    return (Step("SplitV", inputs, parts, part, _ATTRIBUTES["split"]),)


def _batch_norm(_: Shape, shapes: Sequence[Shape], output: Shape) -> tuple[Step, ...]:
    channels = shapes[1]
    empty = TensorSpec((0,), "float32", np.zeros(0, np.float32))
    given = (output, channels, channels, channels, channels, (0,))
    attributes = _ATTRIBUTES["batch_norm"]
    return (Step("FusedBatchNormV3", (0, 1, 2, empty, empty), given, 0, attributes),)


def _depthwise(_: Shape, shapes: Sequence[Shape], output: Shape) -> tuple[Step, ...]:
    """Our filters have one output a channel; TensorFlow's have a dimension for it."""
    filters = (*shapes[1], 1)
    return (
        Step("Reshape", (1, _constant(*filters)), (filters,)),
        Step("DepthwiseConv2dNative", (0, 2), (output,), 0, _SAME),
    )


def _layer_norm(_: Shape, __: Sequence[Shape], output: Shape) -> tuple[Step, ...]:
    row = (*output[:-1], 1)
    last = _constant(len(output) - 1)
    keep = {"keep_dims": True}
    return (
        Step("Mean", (0, last), (row,), 0, keep),
        Step("Sub", (0, 3), (output,)),
        Step("Square", (4,), (output,)),
        Step("Mean", (5, last), (row,), 0, keep),
        Step("Rsqrt", (6,), (row,)),
        Step("Mul", (4, 7), (output,)),
        Step("Mul", (8, 1), (output,)),
        Step("AddV2", (9, 2), (output,)),
    )


_SPECIAL: dict[str, Callable[[Shape, Sequence[Shape], Shape], tuple[Step, ...]]] = {
    "split": _split,
    "batch_norm": _batch_norm,
    "depthwise_conv": _depthwise,
    "layer_norm": _layer_norm,
}
