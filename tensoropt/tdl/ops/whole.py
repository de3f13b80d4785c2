"""Functions that take some dimensions of their operands whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tensoropt.tdl.expression import Expression, Literal, Opaque, Operand, tensor
from tensoropt.tensor_spec import TensorSpec

__all__ = ["WHOLE", "along", "batched"]

WHOLE = slice(None)


def along(name: str, x: Operand, index: Sequence[Expression], dims: Collection[int]) -> Expression:
    """The element at ``index`` of what an opaque function makes of ``x`` along ``dims``.

    Every other dimension passes through; without ``dims`` it is the element of ``x`` itself.
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
    """A function of the operands' last dimensions, for every index of those before them.

    Args:
        name: of the function.
        operands: each with how many last dimensions the function takes whole; leading dimensions
            of size 1, or none, broadcast.
        outputs: specs of the outputs.
        cores: how many last dimensions of each output the function makes.
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
    own = x.rank - core
    sizes = zip(x.shape[:own], shape[len(batch) - own :], batch[len(batch) - own :], strict=True)
    leading = (Literal(0) if size == 1 and size != n else i for size, n, i in sizes)
    return (*leading, *(WHOLE,) * core)
