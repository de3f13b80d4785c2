"""What a description says of a split whatever the extents are that only a run decides.

A program for all sizes (`tensoropt.parallel.any_size`) is made at the sizes of one run. It holds at
others where each operator that is split is of a description that says so by one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tensoropt.tdl.derivation import Derivation

__all__ = ["AnySize", "along_known", "by_index", "regrouped"]

AnySize = Callable[[Derivation, Sequence[int]], bool]
"""Whether a split holds for all sizes, given shapes with -1 for what only a run decides, and in how
many pieces each index is split. Pieces of inputs are equal at all sizes."""


def by_index(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For lambdas that do not depend on extents: a dimension is in pieces where one that is read
    by the same index is."""
    read = {n for numbers in derivation.inputs for n in numbers}
    return all(n in read for n in _unknown(derivation, pieces))


def along_known(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For those that depend on the extents of what is split, or make pieces of nothing."""
    return not _unknown(derivation, pieces)


def regrouped(derivation: Derivation, pieces: Sequence[int]) -> bool:
    """For a reshape, whose elements keep their row-major order.

    Pieces of an input's dimension are pieces of an output's where both have as many elements in all
    dimensions from there on: then both have as many blocks of these, each cut alike. In first
    dimensions that is so anyway; then each has to fall into equal pieces.
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
    found: set[int] = set()
    for numbers, shapes in (
        (derivation.inputs, derivation.input_shapes),
        (derivation.outputs, derivation.output_shapes),
    ):
        for dims, shape in zip(numbers, shapes, strict=True):
            found |= {n for n, size in zip(dims, shape, strict=True) if n is not None and size < 0}
    return {n for n in found if pieces[n] > 1}
