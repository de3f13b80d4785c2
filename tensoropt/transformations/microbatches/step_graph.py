"""The operators of a step of several microbatches, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensoropt.graph.operator import GRADIENT, GradientTag, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec

__all__ = ["BOUNDARY", "MICROBATCH", "PART", "RESULT", "SUM", "StepGraph", "named"]

MICROBATCH = "_microbatch"
"""Attribute of what is fed or drawn for a microbatch: along which dimension, of which microbatch,
of how many it has the examples."""

BOUNDARY = "MicrobatchBoundary"
"""What microbatches read of a tensor that is computed once. Attribute ``reader``: one of the
operators that read it, and the input's number; ``dim``: along which they read parts, or None."""
PART = "MicrobatchPart"
"""A microbatch's part of a tensor: along ``dim`` the one of ``number`` of ``count``, or all of it;
times ``scale``. ``boundary``: whose part it is; None for a gradient."""
SUM = "MicrobatchSum"
"""The sum of gradients by ``boundary``."""
RESULT = "MicrobatchResult"
"""What microbatches have made of an operator. Its inputs are all microbatches' first outputs, then
their second ones. Attributes: ``dims``, for each output the dimension along which they are
concatenated, or None; ``scales``, what their sum is multiplied by, None for the first of them."""


def named(name: str, microbatch: int) -> str:
    """The name of a microbatch's own operator."""
    return f"microbatch_{microbatch}/{name}"


class StepGraph:
    """A graph that grows.

    Attributes:
        operators: by name, in topological order.
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
        """An operator that is not in the script."""
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
        """The operator of a gradient."""
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
