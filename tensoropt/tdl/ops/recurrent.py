"""Fused recurrent cells: rows of the batch are independent, weights are whole."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Expression, Opaque, Operand
from tensoropt.tdl.ops.whole import WHOLE
from tensoropt.tdl.registry import describe

__all__: list[str] = []


def _weights(operands: tuple[Operand, ...]) -> list[Any]:
    return [x[(WHOLE,) * x.rank] for x in operands]


@describe("LSTMBlockCell")
def lstm_cell(x: Operand, state: Operand, output: Operand, *weights: Operand) -> Any:
    """Seven outputs: the gates, the cell and what comes out."""

    def element(b: Expression, c: Expression) -> Expression:
        rows = (x[b, WHOLE], state[b, WHOLE], output[b, WHOLE])
        return Opaque("LSTM")(*rows, *_weights(weights))[c]

    return (element,) * 7


@describe("GRUBlockCell")
def gru_cell(x: Operand, output: Operand, *weights: Operand) -> Any:
    def element(b: Expression, c: Expression) -> Expression:
        return Opaque("GRU")(x[b, WHOLE], output[b, WHOLE], *_weights(weights))[c]

    return (element,) * 4


@describe("BlockLSTM", "BlockLSTMV2")
def lstm(_longest: Operand, x: Operand, state: Operand, output: Operand, *weights: Operand) -> Any:
    """A whole sequence, time first."""

    def element(t: Expression, b: Expression, c: Expression) -> Expression:
        rows = (x[WHOLE, b, WHOLE], state[b, WHOLE], output[b, WHOLE])
        return Opaque("LSTM")(*rows, *_weights(weights))[t, c]

    return (element,) * 7
