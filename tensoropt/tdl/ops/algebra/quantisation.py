"""Fake quantisation and bucketing: elementwise, with limits that may belong to channels."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Operand, elementwise
from tensoropt.tdl.registry import describe

__all__: list[str] = []

quantise = elementwise("quantise", operations=5)


@describe("FakeQuantWithMinMaxArgs", "Bucketize")
def with_fixed_limits(x: Operand) -> Any:
    return lambda *i: quantise(x[i])


@describe("FakeQuantWithMinMaxArgsGradient")
def gradient_with_fixed_limits(gradient: Operand, x: Operand) -> Any:
    return lambda *i: quantise(gradient[i], x[i])


@describe("FakeQuantWithMinMaxVars")
def with_limits(x: Operand, low: Operand, high: Operand) -> Any:
    return lambda *i: quantise(x[i], low[()], high[()])


@describe("FakeQuantWithMinMaxVarsPerChannel")
def with_limits_per_channel(x: Operand, low: Operand, high: Operand) -> Any:
    return lambda *i: quantise(x[i], low[i[-1]], high[i[-1]])


@describe("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantise_and_dequantise(
    x: Operand,
    low: Operand,
    high: Operand,
    *_bits: Operand,
    range_given: bool = False,
    axis: int = -1,
) -> Any:
    """Without a given range the kernel computes the largest value, of all or of a channel."""
    if not range_given or axis != -1:
        return None
    return lambda *i: quantise(x[i], low[()], high[()])
