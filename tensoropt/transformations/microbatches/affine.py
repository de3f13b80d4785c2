"""Operators whose gradient by some inputs does not depend on these inputs.

A loss is computed from sums over the batch, which exist only after the last microbatch. Their
gradients are needed before the first one. So the loss must be affine in these sums.
"""

from __future__ import annotations

from collections.abc import Collection

from tensoropt.graph.operator import Operator

__all__ = ["coefficients"]

_ADDITIVE = frozenset(
    {"Add", "AddN", "AddV2", "BiasAdd", "BroadcastTo", "Cast", "CheckNumerics", "ConcatV2"}
    | {"ExpandDims", "Identity", "IdentityN", "Mean", "Neg", "Pack", "Reshape"}
    | {"Slice", "Snapshot", "Squeeze", "StridedSlice", "Sub", "Sum", "Tile", "Transpose", "Unpack"}
)
_QUOTIENTS = frozenset({"Div", "DivNoNan", "RealDiv"})
_PRODUCTS = frozenset({"BatchMatMulV2", "MatMul", "Mul", "MulNoNan"})
_CHOICES = frozenset({"Select", "SelectV2"})


def coefficients(operator: Operator, inputs: Collection[int]) -> tuple[int, ...] | None:
    """The other inputs that an operator's gradient by some inputs reads.

    Args:
        operator: any operator.
        inputs: numbers of the inputs in which it must be affine, all together.

    Returns:
        Numbers of inputs; None if the gradient reads one of ``inputs``, or may do so.
    """
    others = [n for n in range(len(operator.inputs)) if n not in inputs]
    if operator.type in _ADDITIVE:
        # Axes, shapes and positions are not summands.
        read = tuple(n for n in others if not _is_summand(operator.input_specs[n].dtype))
    elif operator.type in _QUOTIENTS:
        read = (1,)
    elif operator.type in _PRODUCTS and len(inputs) == 1:
        read = tuple(others)
    elif operator.type in _CHOICES:
        read = (0,)
    else:
        return None
    return None if set(read) & set(inputs) else read


def _is_summand(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
