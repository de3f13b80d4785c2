"""The record of an operator type: its description, and facts about its kernel and gradient.

If the devices' tensors are partial sums, a linear operator gives each device a partial sum of its
result: ``f(x1 + x2) = f(x1) + f(x2)``. The partial sums need not be added up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.tdl.description import Description
from tensoropt.tensor_spec import TensorSpec

__all__ = ["EACH_INPUT", "OperatorType", "Role", "linear_inputs"]

Role = Literal[
    "computes", "variable", "placeholder", "constant", "names", "reads shapes", "calls functions"
]
"""The work of an operator: its kernel computes; it holds the value of a variable, a placeholder or
a constant; it names or groups other operators' outputs; it reads only the shapes of its inputs; or
it calls functions of the graph, whose operators do the work."""

EACH_INPUT = (-1, 0)
"""A pair of `OperatorType.overwrites`: the first output may take the memory of any input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorType:
    """All that is known of an operator type. The defaults are right for an unknown one.

    Attributes:
        description: of its computation, if it has one.

        role: see `Role`.
        value: the relation of the outputs' values to the inputs': "same" if output n equals input
            n, "converted" for another element type, "elements" if outputs only contain elements of
            inputs; None for computed values.
        reads_variable: whether it reads the variable that its first input refers to.
        any_layout: whether it works on a variable's handle however the variable is split.
        writes_files: whether it writes to files or streams and returns nothing. Only the first
            rank runs it.

        view: whether outputs lie in their inputs' memory: "first" if the only output lies in the
            first input's, "each" if output n lies in input n's.
        overwrites: pairs (input, output): the kernel takes the input's memory for the output if
            no other operator needs the input. See `EACH_INPUT`.
        passes_unchanged: whether the kernel returns its input's memory if it has nothing to do,
            as a sum over dimensions of one element.
        piece_of_input: whether an output may lie in a part of an input's memory.
        in_line: whether TensorFlow's executor runs the kernel at once, in the thread that
            completed its inputs.
        onednn: whether TensorFlow's oneDNN pass replaces the operator, which moves it to the end
            of the graph.
        fused_after: types of a producer of its first input that oneDNN may fuse with it.

        linear: the inputs in which it is linear: "terms" (all together), "factors" (each of two),
            "first" or "second"; None if in none.
        affine: how its gradient by some inputs depends on the others: a "sum" (not at all), a
            "quotient" (on the denominator), a "product" (on the other factor), a "choice" (on the
            condition); None if the gradient is not known to be linear.
        gradient_stops: whether it has no gradient by its inputs.
        gradient_passes: whether the gradient by an input of the output's shape is the gradient by
            the output.
        outputs_for_gradient: whether outputs after the first one only serve its gradient.

        windows: the kind of its windows: "filter" for a convolution, "transposed" for a
            convolution's gradient by its data, "pool".
        rule: the name of the rule of the execution for splits that its kernel cannot do.
        any_size_rule: whether the rule is valid for all values of extents that are known only in a
            run.
        uneven_rule: whether the splits that the description spells out hold for uneven pieces.
        rows: numbers of the inputs with rows and with row numbers, if a device that has some rows
            of the first input takes only the updates of these rows.
    """

    description: Description | None = None

    role: Role = "computes"
    value: Literal["same", "converted", "elements"] | None = None
    reads_variable: bool = False
    any_layout: bool = False
    writes_files: bool = False

    view: Literal["first", "each"] | None = None
    overwrites: tuple[tuple[int, int], ...] = ()
    passes_unchanged: bool = False
    piece_of_input: bool = False
    in_line: bool = False
    onednn: bool = False
    fused_after: tuple[str, ...] = ()

    linear: Literal["terms", "factors", "first", "second"] | None = None
    affine: Literal["sum", "quotient", "product", "choice"] | None = None
    gradient_stops: bool = False
    gradient_passes: bool = False
    outputs_for_gradient: bool = False

    windows: Literal["filter", "transposed", "pool"] | None = None
    rule: str | None = None
    any_size_rule: bool = False
    uneven_rule: bool = False
    rows: tuple[int, int] | None = None


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
