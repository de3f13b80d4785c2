"""NumPy's broadcasting, in subscripts."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.tdl.expression import Element, Expression, Literal, Operand

__all__ = ["at", "broadcast"]


def broadcast(shape: Sequence[int], index: Sequence[Expression]) -> tuple[Expression, ...]:
    """Subscripts of a tensor of ``shape`` at the output element ``index``, aligned at the right."""
    last = index[len(index) - len(shape) :]
    return tuple(Literal(0) if n == 1 else i for n, i in zip(shape, last, strict=True))


def at(operand: Operand, index: Sequence[Expression]) -> Element:
    """The operand's element that meets the output element ``index``."""
    return operand[broadcast(operand.shape, index)]
