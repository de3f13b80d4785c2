"""The inputs in which an operator is linear.

If the devices' tensors are partial sums, a linear operator gives each device a partial sum of its
result: ``f(x1 + x2) = f(x1) + f(x2)``. The partial sums need not be added up first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.tensor_spec import TensorSpec

__all__ = ["linear_inputs"]

_FRACTIONS = ("float", "bfloat", "half", "complex")


def linear_inputs(
    linear: str | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[tuple[int, ...], ...]:
    """Return the sets of inputs in which all outputs are linear together, the other inputs fixed.

    A sum is linear in both of its terms at once, ``(0, 1)``; a product in either, ``(0,)`` and
    ``(1,)``. Only inputs of the outputs' element type count, which must have fractions.

    Args:
        linear: `OperatorType.linear` of the operator's type.
        inputs: specs of the inputs.
        outputs: specs of the outputs.
    """
    types = {spec.dtype for spec in outputs}
    if linear is None or len(types) != 1 or not min(types).startswith(_FRACTIONS):
        return ()
    alike = tuple(number for number, spec in enumerate(inputs) if spec.dtype in types)
    match linear:
        case "terms":
            return (alike,) if alike else ()
        case "factors":
            return tuple((number,) for number in alike) if len(inputs) == 2 else ()
        case "first":
            return ((0,),) if 0 in alike else ()
    return ((1,),)
