"""Subscripts of operands: NumPy's broadcasting, and functions that read some dimensions whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tensoropt.tdl.expression import Element, Expression, Literal, Opaque, Operand, tensor
from tensoropt.tensor_spec import TensorSpec

__all__ = ["WHOLE", "along", "at", "batched", "broadcast"]

WHOLE = slice(None)


def along(name: str, x: Operand, index: Sequence[Expression], dims: Collection[int]) -> Expression:
    """Return the element at ``index`` of an opaque function of ``x`` along ``dims``.

    All other dimensions are independent. Without ``dims`` it is the element of ``x`` itself.
    """
    if not dims:
        return x[tuple(index)]
    place = tuple(WHOLE if d in dims else i for d, i in enumerate(index))
    return Opaque(name)(x[place])[tuple(index[d] for d in sorted(dims))]


def batched(
    name: str,
    operands: Sequence[tuple[Operand, int]],
    outputs: Sequence[TensorSpec],
    cores: Sequence[int],
) -> tuple[Callable[..., Any], ...]:
    """Return the lambdas of a function of the operands' last dimensions, one per output.

    The function is applied for every index of the leading dimensions.

    Args:
        name: name of the function.
        operands: each with the number of last dimensions that the function reads whole; leading
            dimensions of size 1, or missing ones, broadcast.
        outputs: specs of the outputs.
        cores: per output the number of last dimensions that the function returns.
    """
    batch = len(outputs[0].shape) - cores[0]
    shape = outputs[0].shape[:batch]

    def lambda_of(output: TensorSpec, core: int, number: int) -> Callable[..., Any]:
        rank = len(output.shape)
        if rank != batch + core:  # an output that the attributes leave out
            return tensor([f"o{number}_{d}" for d in range(rank)], lambda *_: Literal(0))
        names = [f"b{d}" for d in range(batch)] + [f"o{number}_{d}" for d in range(core)]

        def element(*i: Expression) -> Expression:
            slices = (x[_place(x, own, i[:batch], shape)] for x, own in operands)
            value = Opaque(name)(*slices)
            return value[i[batch:]] if core else value

        return tensor(names, element)

    return tuple(
        lambda_of(output, core, number)
        for number, (output, core) in enumerate(zip(outputs, cores, strict=True))
    )


def _place(
    x: Operand, core: int, batch: Sequence[Expression], shape: Sequence[int]
) -> tuple[Any, ...]:
    depth = x.rank - core
    begin = len(batch) - depth
    sizes = zip(x.shape[:depth], shape[begin:], batch[begin:], strict=True)
    leading = (Literal(0) if size == 1 and size != n else i for size, n, i in sizes)
    return (*leading, *(WHOLE,) * core)


def broadcast(shape: Sequence[int], index: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return the subscripts of a tensor of ``shape`` at the output element ``index``."""
    last = index[len(index) - len(shape) :]
    return tuple(Literal(0) if n == 1 else i for n, i in zip(shape, last, strict=True))


def at(operand: Operand, index: Sequence[Expression]) -> Element:
    """Return the operand's element that the output element ``index`` reads."""
    return operand[broadcast(operand.shape, index)]
