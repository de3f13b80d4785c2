"""Fused recurrent cells, and loops: rows of the batch are independent, weights are whole."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensoropt.tdl.expression import Expression, Opaque, Operand, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []


def _weights(operands: tuple[Operand, ...]) -> list[Any]:
    return [x[(WHOLE,) * x.rank] for x in operands]


@describe("LSTMBlockCell")
def lstm_cell(x: Operand, state: Operand, output: Operand, *weights: Operand) -> Any:
    """Seven outputs: the gates, the cell and the output."""

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


def _loop_flops(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    _tensoropt_rows: tuple[int, ...] = (),
) -> int:
    """A multiply-add for each row and step of the first input, and each weight."""
    del outputs
    pairs = zip(inputs, _tensoropt_rows, strict=False)
    weights = sum(x.elements for x, row in pairs if row < 0)
    return 2 * prod(inputs[0].shape[:2]) * weights


@describe("PartitionedCall", flops=_loop_flops)
def call(
    *operands: Operand, outputs: tuple[TensorSpec, ...], _tensoropt_rows: tuple[int, ...] = ()
) -> Any:
    """A function. With ``_tensoropt_rows``, as of a recurrent layer, its rows are independent.

    ``_tensoropt_rows`` has the dimension of rows of each operand and output, -1 for none.
    """
    if not _tensoropt_rows:
        return None
    rows = _tensoropt_rows

    def read(x: Operand, b: Expression) -> Any:
        row = rows[x.position]
        return x.at(*(b if d == row else WHOLE for d in range(x.rank)))

    def lambda_of(output: TensorSpec, row: int, number: int) -> Any:
        names = ["b" if d == row else f"o{number}_{d}" for d in range(len(output.shape))]

        def element(*i: Expression) -> Expression:
            value = Opaque("loop")(*(read(x, i[row]) for x in operands))
            rest = tuple(index for d, index in enumerate(i) if d != row)
            return value[rest] if rest else value

        return tensor(names, element)

    of_outputs = zip(outputs, rows[len(operands) :], strict=True)
    return tuple(lambda_of(*each, number) for number, each in enumerate(of_outputs))


record("PartitionedCall", facts=OperatorType(role="calls functions"))
