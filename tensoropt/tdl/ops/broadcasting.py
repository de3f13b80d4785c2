"""NumPy's broadcasting, in subscripts."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.tdl.expression import Element, Expression, Literal, Operand

__all__ = ["at", "broadcast"]


def broadcast(shape: Sequence[int], index: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return the subscripts of a tensor of ``shape`` at the output element ``index``."""
    last = index[len(index) - len(shape) :]
    return tuple(Literal(0) if n == 1 else i for n, i in zip(shape, last, strict=True))


def at(operand: Operand, index: Sequence[Expression]) -> Element:
    """Return the operand's element that the output element ``index`` reads."""
    return operand[broadcast(operand.shape, index)]
