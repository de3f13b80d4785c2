"""Operators that are affine in some of their inputs: the gradient does not depend on these inputs.

A loss is computed from sums over the batch, which exist only after the last microbatch. But the
gradients by these sums are needed before the first microbatch. So the loss has to be affine in the
sums.
"""

from __future__ import annotations

from collections.abc import Collection

from tensoropt.graph.operator import Operator
from tensoropt.tdl import operator_type

__all__ = ["coefficients"]


def coefficients(operator: Operator, inputs: Collection[int]) -> tuple[int, ...] | None:
    """The inputs that an operator's gradient by some other inputs reads.

    Args:
        operator: any operator.
        inputs: numbers of the inputs in which it must be affine, all together.

    Returns:
        Numbers of inputs; None if the gradient reads one of ``inputs``, or may do so.
    """
    others = [n for n in range(len(operator.inputs)) if n not in inputs]
    match operator_type(operator.type).affine:
        case "sum":
            # Axes, shapes and positions are not summands.
            read = tuple(n for n in others if not _is_summand(operator.input_specs[n].dtype))
        case "quotient":
            read = (1,)
        case "product" if len(inputs) == 1:
            read = tuple(others)
        case "choice":
            read = (0,)
        case _:
            return None
    return None if set(read) & set(inputs) else read


def _is_summand(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
