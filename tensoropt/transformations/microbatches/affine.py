"""Operators whose gradient by some inputs does not depend on these inputs.

A loss is made of sums over the batch, which are there after the last microbatch only; their
gradients are needed before the first. So what makes the loss of them is to be affine in them.
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
        operator: any.
        inputs: numbers of those that it is to be affine in, all together.

    Returns:
        Numbers of inputs; None where the gradient reads one of ``inputs``, or may do so.
    """
    others = [n for n in range(len(operator.inputs)) if n not in inputs]
    if operator.type in _ADDITIVE:
        # Axes, shapes and places are no summands.
        found = tuple(n for n in others if not _is_summand(operator.input_specs[n].dtype))
    elif operator.type in _QUOTIENTS:
        found = (1,)
    elif operator.type in _PRODUCTS and len(inputs) == 1:
        found = tuple(others)
    elif operator.type in _CHOICES:
        found = (0,)
    else:
        return None
    return None if set(found) & set(inputs) else found


def _is_summand(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
