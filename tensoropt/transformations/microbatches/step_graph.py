"""The graph of a step in several microbatches, one after the other, while it is built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensoropt.graph.operator import GRADIENT, GradientTag, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

__all__ = ["BOUNDARY", "MICROBATCH", "PART", "RESULT", "SUM", "StepGraph", "named"]

MICROBATCH = "_microbatch"
"""Attribute of an operator that is fed or drawn for a microbatch: (the dimension of examples, the
number of the microbatch, the number of microbatches)."""

BOUNDARY = "MicrobatchBoundary"
"""The tensor that operators of all microbatches read in place of one that is computed once.
Attribute ``reader``: one of these operators, and the number of its input; ``dim``: the dimension
along which they read parts, or None."""
PART = "MicrobatchPart"
"""A microbatch's part of a tensor, times ``scale``: part ``number`` of ``count`` along ``dim``, or
the whole tensor. ``boundary``: the boundary whose part it is; None for a gradient."""
SUM = "MicrobatchSum"
"""The sum of two gradients by ``boundary``."""
RESULT = "MicrobatchResult"
"""The result of an operator of the script, from all microbatches. Its inputs are the first outputs
of all microbatches, then their second outputs. Attributes: ``dims``, for each output the dimension
of the concatenation, or None; ``scales``, the factor of the sum, or None for the first microbatch's
output."""


def named(name: str, microbatch: int) -> str:
    """The name of a microbatch's copy of an operator."""
    return f"microbatch_{microbatch}/{name}"


class StepGraph:
    """A graph to which operators are added.

    Attributes:
        operators: the operators by name, in topological order.
    """

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}

    def add(self, operator: Operator) -> TensorName:
        self.operators[operator.name] = operator
        return TensorName(operator.name, 0)

    def spec(self, tensor: TensorName) -> TensorSpec:
        return self.operators[tensor.operator].outputs[tensor.index]

    def new(
        self,
        type_: str,
        name: str,
        inputs: Iterable[TensorName],
        outputs: Iterable[TensorSpec],
        control_inputs: Iterable[str] = (),
        **attributes: Any,
    ) -> TensorName:
        """Add an operator that is not in the script."""
        inputs = tuple(inputs)
        return self.add(
            Operator(
                name,
                type_,
                inputs,
                tuple(self.spec(tensor) for tensor in inputs),
                tuple(outputs),
                attributes,
                tuple(control_inputs),
                synthetic=True,
            )
        )

    def constant(self, name: str, value: Any, dtype: str) -> TensorName:
        if name in self.operators:
            return TensorName(name, 0)
        return self.new("Const", name, (), [TensorSpec(value.shape, dtype, value)])

    def gradient(
        self,
        name: str,
        call: int,
        ys: Iterable[tuple[TensorName, TensorName | None]],
        x: TensorName,
        spec: TensorSpec,
        part: str = "dense",
        stops: Iterable[TensorName] = (),
        after: Iterable[str] = (),
    ) -> TensorName:
        """Add the operator of a gradient."""
        pairs = tuple(ys)
        tag = GradientTag(
            call,
            part,
            tuple(y for y, _ in pairs),
            x,
            tuple(grad for _, grad in pairs),
            tuple(stops),
            tuple(after),
        )
        inputs = (*tag.ys, *(grad for grad in tag.grad_ys if grad is not None))
        return self.add(
            Operator(
                name,
                GRADIENT,
                inputs,
                tuple(self.spec(tensor) for tensor in inputs),
                (spec,),
                {"x": str(x), "part": part, "call": call},
                tag.after,
                gradient=tag,
            )
        )
