"""Pooling, and normalisation over neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensoropt.tdl.description import output_shape
from tensoropt.tdl.expression import Expression, Max, Mean, Opaque, Operand, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.neural.windows import SPACE, windows
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

WHOLE = slice(None)
Outputs = tuple[TensorSpec, ...]
Sizes = tuple[int, ...]


def _pool(
    reducer: Callable[..., Expression],
    data: Operand,
    outputs: Outputs,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str,
    explicit_paddings: Sizes = (),
) -> Any:
    channel = 1 if data_format.startswith("NC") else data.rank - 1
    if ksize[0] != 1 or ksize[channel] != 1:
        return None
    kernel = [size for d, size in enumerate(ksize) if d not in (0, channel)]
    w = windows(
        data.shape,
        outputs[0].shape,
        kernel,
        strides,
        padding,
        data_format=data_format,
        explicit_paddings=explicit_paddings,
    )
    if w is None:
        return None

    def element(*i: Expression) -> Expression:
        b, c, at = w.parts(i)

        def read(*offset: Expression) -> Expression:
            return data.padded[w.place(b, c, w.read(at, offset))]

        return reducer(tensor(w.offsets, read), **dict(zip(w.offsets, kernel, strict=True)))

    return tensor(w.names("c"), element)


@describe("MaxPool", "MaxPool3D", spelled_out=SPACE)
def max_pool(
    data: Operand,
    *,
    outputs: Outputs,
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str = "NHWC",
    explicit_paddings: Sizes = (),
) -> Any:
    return _pool(Max, data, outputs, ksize, strides, padding, data_format, explicit_paddings)


@describe("MaxPoolV2", constant_operands=(1, 2), spelled_out=SPACE)
def max_pool_v2(
    data: Operand,
    ksize: Operand,
    strides: Operand,
    *,
    outputs: Outputs,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    sizes, steps = ([int(n) for n in x.value] for x in (ksize, strides))
    return _pool(Max, data, outputs, sizes, steps, padding, data_format)


@describe("AvgPool", "AvgPool3D", spelled_out=SPACE)
def average_pool(
    data: Operand,
    *,
    outputs: Outputs,
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    return _pool(Mean, data, outputs, ksize, strides, padding, data_format)


def _per_channel(name: str, operands: Sequence[Operand], ksize: Sizes, data_format: str) -> Any:
    """Batch and channels are independent, space is whole."""
    rank = operands[-1].rank
    channel = 1 if data_format.startswith("NC") else rank - 1
    if ksize[0] != 1 or ksize[channel] != 1:
        return None

    def element(*i: Expression) -> Expression:
        place = tuple(i[d] if d in (0, channel) else WHOLE for d in range(rank))
        space = tuple(i[d] for d in range(1, rank) if d != channel)
        return Opaque(name)(*(x[place] for x in operands))[space]

    return element


@describe("MaxPoolGrad", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPool3DGradGrad")
def max_pool_gradient(
    data: Operand, pooled: Operand, gradient: Operand, *, ksize: Sizes, data_format: str = "NHWC"
) -> Any:
    return _per_channel("MaxPoolGrad", (data, pooled, gradient), ksize, data_format)


@describe("MaxPoolGradV2", "MaxPoolGradGradV2", constant_operands=(3, 4))
def max_pool_gradient_v2(
    data: Operand,
    pooled: Operand,
    gradient: Operand,
    ksize: Operand,
    _strides: Operand,
    *,
    data_format: str = "NHWC",
) -> Any:
    sizes = tuple(int(n) for n in ksize.value)
    return _per_channel("MaxPoolGrad", (data, pooled, gradient), sizes, data_format)


@describe("AvgPoolGrad", "AvgPool3DGrad", constant_operands=(0,), local=output_shape(0))
def average_pool_gradient(
    _shape: Operand, gradient: Operand, *, ksize: Sizes, data_format: str = "NHWC"
) -> Any:
    return _per_channel("AvgPoolGrad", (gradient,), ksize, data_format)


@describe("MaxPoolWithArgmax")
def max_pool_with_argmax(
    data: Operand, *, ksize: Sizes, include_batch_in_index: bool = False
) -> Any:
    """A given place is a number of an image's element, channels included."""
    if include_batch_in_index or ksize[0] != 1:
        return None

    def element(b: Expression, *i: Expression) -> Expression:
        return Opaque("MaxPoolWithArgmax")(data[(b, WHOLE, WHOLE, WHOLE)])[i]

    return element, element


@describe("LRN")
def local_response_normalisation(data: Operand) -> Any:
    return lambda b, y, x, c: Opaque("LRN")(data[b, y, x, :])[c]


@describe("LRNGrad")
def local_response_normalisation_gradient(g: Operand, data: Operand, made: Operand) -> Any:
    return lambda b, y, x, c: Opaque("LRNGrad")(g[b, y, x, :], data[b, y, x, :], made[b, y, x, :])[
        c
    ]


record(
    "AvgPool",
    facts=OperatorType(onednn=True, linear="first", windows="pool", rule="average pool"),
)
record("AvgPool3D", facts=OperatorType(windows="pool", rule="average pool"))
record("MaxPool3D", "MaxPoolV2", facts=OperatorType(windows="pool", rule="max pool"))
record("AvgPoolGrad", "MaxPoolGrad", facts=OperatorType(onednn=True))
record("MaxPool", facts=OperatorType(onednn=True, windows="pool", rule="max pool"))
