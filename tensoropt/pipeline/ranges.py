"""Sums and maxima over all ranges of consecutive blocks at once.

The results are arrays by the first and the last block of a range, both included.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["range_maxima", "range_sums", "used_alone_sums", "used_sums"]


def range_sums(weights: Int64Array, block: Int64Array, blocks: int) -> Int64Array:
    """Return int64[blocks, blocks, ...]: the sum of the weights of all items in a range.

    Args:
        weights: int64[items, ...], the weight of each item, at least 0.
        block: int64[items], the block of each item.
        blocks: the number of blocks.
    """
    sums = np.zeros((blocks + 1, *weights.shape[1:]), dtype=np.int64)
    np.add.at(sums, block + 1, weights)
    sums = np.cumsum(sums, axis=0)
    return np.maximum(sums[None, 1:] - sums[:-1, None], 0)  # A last block before the first: 0.


def range_maxima(weights: Int64Array, block: Int64Array, blocks: int) -> Int64Array:
    """Return int64[blocks, blocks, ...]: the greatest weight of the items in a range, at least 0.

    The arguments are those of `range_sums`.
    """
    of_block = np.zeros((blocks, *weights.shape[1:]), dtype=np.int64)
    np.maximum.at(of_block, block, weights)
    most = np.zeros((blocks, *of_block.shape), dtype=np.int64)
    for first in range(blocks):
        most[first, first:] = np.maximum.accumulate(of_block[first:], axis=0)
    return most


def used_sums(
    blocks: int,
    items: Iterable[tuple[tuple[int, ...], int | Int64Array]],
    made_in: Iterable[int] | None = None,
    shape: tuple[int, ...] = (),
) -> Int64Array:
    """Return int64[blocks, blocks, *shape]: the sum of the weights of items used in a range.

    An item counts once, however many blocks of the range use it.

    Args:
        blocks: the number of blocks.
        items: for each item the blocks that use it, ascending, and its weight.
        made_in: for each item the block that makes it. With it, an item counts only in ranges that
            begin after that block.
        shape: the shape of a weight.
    """
    first_used = np.zeros((blocks, blocks, *shape), dtype=np.int64)
    makers = iter(made_in) if made_in is not None else None
    for users, weight in items:
        before = next(makers) if makers is not None else -1
        for user in users:  # the first user in ranges that begin in before + 1 .. user
            first_used[before + 1 : user + 1, user] += weight
            before = max(before, user)
    return np.cumsum(first_used, axis=1)


def used_alone_sums(
    blocks: int,
    items: Iterable[tuple[tuple[int, ...], int | Int64Array]],
    shape: tuple[int, ...] = (),
) -> Int64Array:
    """Return int64[blocks, blocks, *shape]: as `used_sums`, of items used in no block outside."""
    held = np.zeros((blocks, blocks, *shape), dtype=np.int64)
    for users, weight in items:
        held[: users[0] + 1, users[-1] :] += weight
    return held
