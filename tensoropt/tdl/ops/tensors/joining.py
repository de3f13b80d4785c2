"""Operators that join tensors or divide one."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Literal, Opaque, Operand, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE, along
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]


def _concat(values: tuple[Operand, ...], axis: Operand) -> Any:
    dim = int(axis.value.reshape(())) % values[0].rank

    def element(*i: Expression) -> Expression:
        place = (*i[:dim], WHOLE, *i[dim + 1 :])
        return Opaque("Concat")(*(x[place] for x in values))[i[dim]]

    return element


@describe("ConcatV2", constant_operands=(-1,), any_size=by_index)
def concat_v2(*inputs: Operand) -> Any:
    return _concat(inputs[:-1], inputs[-1])


@describe("Concat", constant_operands=(0,), any_size=by_index)
def concat(*inputs: Operand) -> Any:
    return _concat(inputs[1:], inputs[0])


@describe("Pack", any_size=by_index)
def pack(*values: Operand, axis: int = 0) -> Any:
    dim = axis % (values[0].rank + 1)

    def element(*i: Expression) -> Expression:
        rest = i[:dim] + i[dim + 1 :]
        return Opaque("Pack")(*(x[rest] for x in values))[i[dim]]

    return element


@describe("Unpack", any_size=by_index)
def unpack(x: Operand, *, outputs: Outputs, axis: int = 0) -> Any:
    dim = axis % x.rank
    return tuple(lambda *i, n=n: x.at(*i[:dim], Literal(n), *i[dim:]) for n in range(len(outputs)))


@describe("Split", constant_operands=(0,), any_size=by_index)
def split(axis: Operand, x: Operand, *, outputs: Outputs) -> Any:
    dim = int(axis.value.reshape(())) % x.rank
    return _pieces(x, dim, outputs)


@describe("SplitV", constant_operands=(2,), any_size=by_index)
def split_v(x: Operand, _sizes: Operand, axis: Operand, *, outputs: Outputs) -> Any:
    dim = int(axis.value.reshape(())) % x.rank
    return _pieces(x, dim, outputs)


def _pieces(x: Operand, dim: int, outputs: Outputs) -> Any:
    """Each output has a size, and therefore an index, of its own along ``dim``."""

    def lambda_of(number: int) -> Any:
        names = [f"i{d}" if d != dim else f"i{d}_{number}" for d in range(x.rank)]
        return tensor(names, lambda *i: along("Split", x, i, {dim}))

    return tuple(lambda_of(number) for number in range(len(outputs)))


record(
    "ConcatV2",
    "Pack",
    facts=OperatorType(value="elements", passes_unchanged=True, linear="terms", affine="sum"),
)
record("Split", facts=OperatorType(value="elements", piece_of_input=True, linear="second"))
record("SplitV", facts=OperatorType(piece_of_input=True, linear="first"))
record(
    "Unpack",
    facts=OperatorType(value="elements", piece_of_input=True, linear="first", affine="sum"),
)
