"""Whether a split is valid for all values of extents that are known only in a run.

A program for all sizes (`tensoropt.parallel.any_size`) is planned at the sizes of one run. It is
valid at other sizes if the description of every split operator has one of these functions, and the
function returns True.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tensoropt.tdl.derivation import Derivation

__all__ = ["AnySize", "along_known", "by_index", "regrouped"]

AnySize = Callable[[Derivation, Sequence[int]], bool]
"""From a derivation whose shapes have -1 for an unknown extent, and the number of pieces of each
index, whether the split is valid for all sizes. Pieces of inputs have equal sizes."""


def by_index(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For lambdas that do not depend on extents.

    A dimension of an output then falls into equal pieces if the same index reads an input.
    """
    read = {n for numbers in derivation.inputs for n in numbers}
    return all(n in read for n in _unknown(derivation, pieces))


def along_known(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For lambdas that depend on the extents of split dimensions, or read no input along them."""
    return not _unknown(derivation, pieces)


def regrouped(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For a reshape, whose elements keep their row-major order.

    Pieces of an input's dimension are pieces of an output's dimension if the number of elements in
    this and all later dimensions is equal on both sides. The first dimensions always satisfy this;
    they only have to fall into equal pieces.
    """
    source, target = derivation.input_shapes[0], derivation.output_shapes[0]
    for n, count in enumerate(pieces):
        if count == 1:
            continue
        if n not in derivation.inputs[0] or n not in derivation.outputs[0]:
            return False
        i, o = derivation.inputs[0].index(n), derivation.outputs[0].index(n)
        inner = [prod(source[i:]), prod(target[o:])]
        known = -1 not in (*source[i:], *target[o:])
        if known and inner[0] == inner[1]:
            continue
        if i or o or not (target[0] >= 0 or _is_product(target, source)):
            return False
    return True


def _is_product(target: Sequence[int], source: Sequence[int]) -> bool:
    """Whether the first dimension of ``target`` is the product of the first ones of ``source``."""
    if -1 in target[1:]:
        return False
    rest = prod(target[1:])
    tails = (source[end:] for end in range(1, len(source) + 1))
    return any(-1 not in tail and prod(tail) == rest for tail in tails)


def _unknown(derivation: Derivation, pieces: Sequence[int]) -> set[int]:
    """The indices that are split along a dimension of unknown extent."""
    split_indices: set[int] = set()
    for numbers, shapes in (
        (derivation.inputs, derivation.input_shapes),
        (derivation.outputs, derivation.output_shapes),
    ):
        for dims, shape in zip(numbers, shapes, strict=True):
            split_indices |= {
                n for n, size in zip(dims, shape, strict=True) if n is not None and size < 0
            }
    return {n for n in split_indices if pieces[n] > 1}
