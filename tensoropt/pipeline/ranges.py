"""Sums and greatest values over ranges of consecutive blocks, for all ranges at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["held_alone", "held_by", "range_most", "range_sums"]


def range_sums(weights: Int64Array, block: Int64Array, blocks: int) -> Int64Array:
    """int64[blocks, blocks, ...], by first and last block: sums of weights of the items between.

    Args:
        weights: int64[items, ...].
        block: int64[items], of each.
        blocks: how many.
    """
    sums = np.zeros((blocks + 1, *weights.shape[1:]), dtype=np.int64)
    np.add.at(sums, block + 1, weights)
    sums = np.cumsum(sums, axis=0)
    return np.maximum(sums[None, 1:] - sums[:-1, None], 0)


def range_most(weights: Int64Array, block: Int64Array, blocks: int) -> Int64Array:
    """int64[blocks, blocks, ...]: of the weights between, at least 0, the greatest."""
    most = np.zeros((blocks, *weights.shape[1:]), dtype=np.int64)
    np.maximum.at(most, block, weights)
    found = np.zeros((blocks, *most.shape), dtype=np.int64)
    for first in range(blocks):
        found[first, first:] = np.maximum.accumulate(most[first:], axis=0)
    return found


def held_by(
    blocks: int,
    items: Iterable[tuple[tuple[int, ...], int | Int64Array]],
    made: Iterable[int] | None = None,
    each: tuple[int, ...] = (),
) -> Int64Array:
    """int64[blocks, blocks, *each]: the sum of weights of the items that some block between uses.

    Args:
        blocks: how many.
        items: blocks that use each, ascending, and its weight.
        made: in which block each is made; then only those count that are made before the first.
        each: shape of a weight.
    """
    found = np.zeros((blocks, blocks, *each), dtype=np.int64)
    origins = iter(made) if made is not None else None
    for users, weight in items:
        before = next(origins) if origins is not None else -1
        for block in users:  # the first block from which on this is the first user
            found[before + 1 : block + 1, block] += weight
            before = max(before, block)
    return np.cumsum(found, axis=1)


def held_alone(
    blocks: int,
    items: Iterable[tuple[tuple[int, ...], int | Int64Array]],
    each: tuple[int, ...] = (),
) -> Int64Array:
    """The same of the items that no other block uses."""
    found = np.zeros((blocks, blocks, *each), dtype=np.int64)
    for users, weight in items:
        found[: users[0] + 1, users[-1] :] += weight
    return found
