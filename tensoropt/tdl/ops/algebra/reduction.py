"""Reductions along constant axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import (
    Expression,
    Max,
    Mean,
    Min,
    Opaque,
    Operand,
    Prod,
    Sum,
    elementwise,
)
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import describe, record

__all__: list[str] = []

floor = elementwise("floor")
sqrt = elementwise("sqrt")


def _axes(x: Operand, axis: Operand) -> tuple[int, ...]:
    return tuple(sorted({int(n) % x.rank for n in axis.value.reshape(-1)}))


def _subscripts(
    rank: int, axes: Sequence[int], keep_dims: bool, i: Sequence[Expression], k: Sequence[Any]
) -> tuple[Any, ...]:
    """Subscripts of the input: ``k`` along ``axes``, the output's indices ``i`` elsewhere."""
    inner = iter(k)
    outer = iter([v for n, v in enumerate(i) if n not in axes] if keep_dims else i)
    return tuple(next(inner if n in axes else outer) for n in range(rank))


def _along(reducer: Callable[..., Any], x: Operand, axis: Operand, keep_dims: bool) -> Any:
    axes = _axes(x, axis)
    return lambda *i: reducer(
        lambda *k: x[_subscripts(x.rank, axes, keep_dims, i, k)], rank=len(axes)
    )


@describe("Sum", constant_operands=(1,), any_size=by_index)
def reduce_sum(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    return _along(Sum, x, axis, keep_dims)


@describe("Mean", constant_operands=(1,), any_size=by_index)
def reduce_mean(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    mean = _along(Mean, x, axis, keep_dims)
    if x.dtype.startswith(("int", "uint")):
        return lambda *i: floor(mean(*i))  # the quotient is rounded: not a sum of local ones
    return mean


@describe("Max", "Any", constant_operands=(1,), any_size=by_index)
def reduce_max(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    return _along(Max, x, axis, keep_dims)


@describe("Min", "All", constant_operands=(1,), any_size=by_index)
def reduce_min(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    return _along(Min, x, axis, keep_dims)


@describe("Prod", constant_operands=(1,), any_size=by_index)
def reduce_prod(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    return _along(Prod, x, axis, keep_dims)


@describe("EuclideanNorm", constant_operands=(1,), any_size=by_index)
def euclidean_norm(x: Operand, axis: Operand, *, keep_dims: bool = False) -> Any:
    axes = _axes(x, axis)

    def element(*i: Expression) -> Expression:
        def square(*k: Expression) -> Expression:
            part = x[_subscripts(x.rank, axes, keep_dims, i, k)]
            return part * part

        return sqrt(Sum(square, rank=len(axes)))

    return element


@describe("L2Loss", any_size=by_index)
def l2_loss(x: Operand) -> Any:
    return lambda: Sum(lambda *k: x[k] * x[k], rank=x.rank) / 2


@describe("ArgMax", constant_operands=(1,), any_size=by_index)
def arg_max(x: Operand, dimension: Operand) -> Any:
    return _arg("ArgMax", x, dimension)


@describe("ArgMin", constant_operands=(1,), any_size=by_index)
def arg_min(x: Operand, dimension: Operand) -> Any:
    return _arg("ArgMin", x, dimension)


def _arg(name: str, x: Operand, dimension: Operand) -> Any:
    axes = _axes(x, dimension)
    return lambda *i: Opaque(name)(
        x[_subscripts(x.rank, axes, False, i, [slice(None)] * len(axes))]
    )


record("ArgMax", "ArgMin", facts=OperatorType(gradient_stops=True))
record("Max", facts=OperatorType(passes_unchanged=True, rule="max"))
record("Min", facts=OperatorType(rule="min"))
record("Prod", facts=OperatorType(rule="product"))
record("Mean", "Sum", facts=OperatorType(passes_unchanged=True, linear="first", affine="sum"))
