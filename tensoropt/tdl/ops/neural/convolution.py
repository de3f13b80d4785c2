"""Convolutions of two and three spatial dimensions, their gradients, and dilation.

Batch and channels can be split; a split of a convolution's input channels leaves partial sums.
Spatial dimensions can be split too: a rule exchanges the halos of overlapping windows. Gradient
operators of a script, by the filters for instance, split space only if windows do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensoropt.tdl.description import output_shape
from tensoropt.tdl.expression import Expression, Max, Operand, Sum, elementwise, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.neural.windows import SPACE, Outputs, Sizes, Sliding, sliding, windows
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

# A group of channels must stay whole: these functions use the value of its index.
in_group = elementwise("in_group", operations=0)
largest = elementwise("largest", operations=0)


@describe("Conv2D", "Conv3D", spelled_out=SPACE)
@sliding
def convolution(data: Operand, filters: Operand, outputs: Outputs, window: Sliding) -> Any:
    w = window(data.shape, outputs[0].shape, filters.shape[:-2])
    if w is None:
        return None
    own = filters.shape[-2]
    grouped = own != data.shape[w.channel]

    def element(*i: Expression) -> Expression:
        b, co, at = w.parts(i)

        def product(ci: Expression, *offset: Expression) -> Expression:
            channel = ci
            if grouped:
                channel = co // (filters.shape[-1] * own // data.shape[w.channel]) * own + ci
            read = data.padded[w.place(b, channel, w.read(at, offset))]
            term = read * filters.at(*offset, ci, co)
            return in_group(term, co) if grouped else term

        return Sum(tensor(("ci", *w.offsets), product))

    return tensor(w.names("co"), element)


def _multiply_adds(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """Each element of the gradient is multiplied by all of its filter, whatever the strides."""
    del outputs
    return 2 * inputs[2].elements * prod(inputs[1].shape[:-1])


@describe(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    constant_operands=(0,),
    local=output_shape(0),
    spelled_out=SPACE,
    flops=_multiply_adds,
)
@sliding
def convolution_of_gradient(
    _sizes: Operand, filters: Operand, gradient: Operand, outputs: Outputs, window: Sliding
) -> Any:
    """A transposed convolution, which is the gradient of a convolution by its data."""
    shape = outputs[0].shape
    w = window(shape, gradient.shape, filters.shape[:-2])
    if w is None or filters.shape[-2] != shape[w.channel]:
        return None

    def element(*i: Expression) -> Expression:
        b, ci, at = w.parts(i)

        def product(co: Expression, *offset: Expression) -> Expression:
            read = gradient.padded[w.place(b, co, w.write(at, offset))]
            return read * filters.at(*offset, ci, co)

        return Sum(tensor(("co", *w.offsets), product))

    return tensor(w.names("ci"), element)


@describe(
    "Conv2DBackpropFilter", "Conv3DBackpropFilterV2", constant_operands=(1,), local=output_shape(1)
)
@sliding
def filter_gradient(
    data: Operand, _sizes: Operand, gradient: Operand, outputs: Outputs, window: Sliding
) -> Any:
    w = window(data.shape, gradient.shape, outputs[0].shape[:-2])
    if w is None or outputs[0].shape[-2] != data.shape[w.channel]:
        return None

    def element(*i: Expression) -> Expression:
        *offset, ci, co = i

        def product(b: Expression, *at: Expression) -> Expression:
            read = data.padded[w.place(b, ci, w.read(at, offset))]
            return read * gradient[w.place(b, co, at)]

        return Sum(tensor(("b", *w.axes), product))

    return tensor((*w.offsets, "ci", "co"), element)


@describe("DepthwiseConv2dNative", spelled_out=SPACE)
@sliding
def depthwise(data: Operand, filters: Operand, outputs: Outputs, window: Sliding) -> Any:
    """Output channel c * multiplier + q comes from input channel c alone."""
    *kernel, _, multiplier = filters.shape
    w = window(data.shape, outputs[0].shape, kernel)
    if w is None:
        return None

    def element(*i: Expression) -> Expression:
        b, co, at = w.parts(i)
        c, q = co // multiplier, co % multiplier

        def product(*offset: Expression) -> Expression:
            return data.padded[w.place(b, c, w.read(at, offset))] * filters.at(*offset, c, q)

        return Sum(tensor(w.offsets, product))

    return tensor(w.names("co"), element)


@describe(
    "DepthwiseConv2dNativeBackpropInput",
    constant_operands=(0,),
    local=output_shape(0),
    spelled_out=SPACE,
    flops=lambda inputs, _: 2 * inputs[2].elements * prod(inputs[1].shape[:2]),
)
@sliding
def depthwise_of_gradient(
    _sizes: Operand, filters: Operand, gradient: Operand, outputs: Outputs, window: Sliding
) -> Any:
    *kernel, _, multiplier = filters.shape
    w = window(outputs[0].shape, gradient.shape, kernel)
    if w is None:
        return None

    def element(*i: Expression) -> Expression:
        b, c, at = w.parts(i)

        def product(q: Expression, *offset: Expression) -> Expression:
            read = gradient.padded[w.place(b, c * multiplier + q, w.write(at, offset))]
            return read * filters.at(*offset, c, q)

        return Sum(tensor(("q", *w.offsets), product))

    return tensor(w.names("c"), element)


@describe("DepthwiseConv2dNativeBackpropFilter", constant_operands=(1,), local=output_shape(1))
@sliding
def depthwise_filter_gradient(
    data: Operand, _sizes: Operand, gradient: Operand, outputs: Outputs, window: Sliding
) -> Any:
    *kernel, _, multiplier = outputs[0].shape
    w = window(data.shape, gradient.shape, kernel)
    if w is None:
        return None

    def element(*i: Expression) -> Expression:
        *offset, c, q = i

        def product(b: Expression, *at: Expression) -> Expression:
            read = data.padded[w.place(b, c, w.read(at, offset))]
            return read * gradient[w.place(b, c * multiplier + q, at)]

        return Sum(tensor(("b", *w.axes), product))

    return tensor((*w.offsets, "c", "q"), element)


@describe("Dilation2D", spelled_out=SPACE)
def dilation(
    data: Operand,
    filters: Operand,
    *,
    outputs: Outputs,
    strides: Sizes,
    rates: Sizes,
    padding: str,
) -> Any:
    """Morphological dilation: the largest sum under a window, per channel."""
    w = windows(
        data.shape,
        outputs[0].shape,
        filters.shape[:-1],
        strides,
        padding,
        data_format="NHWC",
        dilations=rates,
    )
    if w is None:
        return None

    def element(*i: Expression) -> Expression:
        b, c, at = w.parts(i)

        def total(*offset: Expression) -> Expression:
            return data.padded[w.place(b, c, w.read(at, offset))] + filters.at(*offset, c)

        return largest(Max(tensor(w.offsets, total)))

    return tensor(w.names("c"), element)


record(
    "Conv2D",
    facts=OperatorType(
        onednn=True, fused_after=("Pad",), linear="factors", windows="filter", rule="convolution"
    ),
)
record("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", facts=OperatorType(onednn=True))
record(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    facts=OperatorType(onednn=True, windows="transposed", rule="transposed convolution"),
)
record(
    "Conv3D",
    "DepthwiseConv2dNative",
    facts=OperatorType(onednn=True, linear="factors", windows="filter", rule="convolution"),
)
record(
    "DepthwiseConv2dNativeBackpropInput",
    facts=OperatorType(windows="transposed", rule="transposed convolution"),
)
record("Dilation2D", facts=OperatorType(windows="filter", rule="convolution"))
