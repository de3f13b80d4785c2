"""Bias addition in both data formats."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Operand, Sum
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import describe, record

__all__: list[str] = []


def _channel(rank: int, data_format: str) -> int:
    return 1 if data_format.startswith("NC") else rank - 1


@describe("BiasAdd", any_size=by_index)
def bias_add(value: Operand, bias: Operand, *, data_format: str = "NHWC") -> Any:
    channel = _channel(value.rank, data_format)
    return lambda *i: value[i] + bias[i[channel]]


@describe("BiasAddV1", any_size=by_index)
def bias_add_v1(value: Operand, bias: Operand) -> Any:
    return lambda *i: value[i] + bias[i[-1]]


@describe("BiasAddGrad")
def bias_add_grad(gradient: Operand, *, data_format: str = "NHWC") -> Any:
    channel = _channel(gradient.rank, data_format)

    def element(c: Expression) -> Expression:
        def part(*k: Expression) -> Expression:
            place = (*k[:channel], c, *k[channel:])
            return gradient[place]

        return Sum(part, rank=gradient.rank - 1)

    return element


record(
    "BiasAdd",
    facts=OperatorType(
        overwrites=((0, 0),),
        fused_after=("Conv2D",),
        linear="terms",
        affine="sum",
        gradient_passes=True,
    ),
)
