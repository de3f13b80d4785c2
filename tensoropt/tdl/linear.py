"""In which of their inputs operators are linear.

Of tensors that are sums of the devices' shares, a linear operator gives the devices shares of what
it would give of the sums: ``f(x1 + x2) = f(x1) + f(x2)``. So the shares need not be added up first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.tensor_spec import TensorSpec

__all__ = ["LINEAR", "linear_inputs"]

_TERMS = ("Add", "AddV2", "Sub", "AddN", "BiasAdd", "Pack", "ConcatV2")
_FACTORS = (
    *("Mul", "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
    *("Conv2D", "Conv3D", "DepthwiseConv2dNative"),
)
_OF_FIRST = (
    *("Identity", "Snapshot", "StopGradient", "PreventGradient", "Neg", "RealDiv", "Div"),
    *("Reshape", "Transpose", "ExpandDims", "Squeeze", "BroadcastTo", "Tile", "Unpack", "SplitV"),
    *("GatherV2", "Slice", "StridedSlice", "Pad", "Sum", "Mean", "AvgPool", "Cumsum"),
)

LINEAR = {
    **dict.fromkeys(_TERMS, "terms"),
    **dict.fromkeys(_FACTORS, "factors"),
    **dict.fromkeys(_OF_FIRST, "first"),
    "Split": "second",
}
"""By operator type: in all its inputs together (but an axis), in either of two, or in one."""

_FRACTIONS = ("float", "bfloat", "half", "complex")


def linear_inputs(
    op_type: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[tuple[int, ...], ...]:
    """The sets of inputs in which all outputs are linear together, the other inputs held.

    A sum is linear in both of its terms at once, ``(0, 1)``; a product in either, ``(0,)`` and
    ``(1,)``. Only tensors of the outputs' own type count, which has to have fractions.

    Args:
        op_type: TensorFlow's operator type.
        inputs: what is known of the inputs.
        outputs: and of the outputs.
    """
    types = {spec.dtype for spec in outputs}
    if op_type not in LINEAR or len(types) != 1 or not min(types).startswith(_FRACTIONS):
        return ()
    alike = tuple(number for number, spec in enumerate(inputs) if spec.dtype in types)
    match LINEAR[op_type]:
        case "terms":
            return (alike,) if alike else ()
        case "factors":
            return tuple((number,) for number in alike) if len(inputs) == 2 else ()
        case "first":
            return ((0,),) if 0 in alike else ()
    return ((1,),)
