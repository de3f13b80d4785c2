"""All layouts of a tensor of one rank on one mesh as rows of digits, and their node numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["NodeLookup", "all_digits", "arrangements", "subsets"]


# Largest number of entries of a table for lookups. Larger spaces are looked up by bisection.
_LARGEST_TABLE = 2**22


def all_digits(axes: int, rank: int, reducers: int) -> Int64Array:
    """Return every layout as int64[V, axes], in the digits of `LayoutSpace.digits`.

    Args:
        axes: number of mesh axes.
        rank: rank of the tensor.
        reducers: number of reducers by which a layout may be partial.
    """
    blocks = [np.zeros((0, axes), np.int64)]
    for count in range(axes + 1):
        permutations = list(itertools.permutations(range(axes), count))
        used = np.array(permutations, np.int64).reshape(len(permutations), count)
        unused = np.array([sorted({*range(axes)} - {*row}) for row in permutations], np.int64)
        runs = list(_cuts(count, rank, axes))
        cuts = np.array(runs, np.int64).reshape(len(runs), count)
        left = axes - count
        options = np.zeros((1 + reducers * (2**left - 1), left), np.int64)
        partial = [
            (reducer, group) for reducer in range(reducers) for group in subsets(tuple(range(left)))
        ]
        for row, (reducer, group) in enumerate(partial):
            options[1 + row, list(group)] = 1 + rank * axes + reducer
        block = np.zeros((len(used), len(cuts), len(options), axes), np.int64)
        for position in range(count):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, used[:, position, None, None]] = cuts[:, position, None]
        for position in range(left):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, unused[:, position, None, None]] = options[:, position]
        blocks.append(block.reshape(len(used) * len(cuts) * len(options), axes))
    return np.concatenate(blocks)


def _cuts(count: int, rank: int, axes: int) -> Iterator[list[int]]:
    """Yield the digits for each way to cut ``count`` axes into ``rank`` runs, which may be
    empty."""
    if rank == 0:
        if not count:
            yield []
        return
    for ends in itertools.combinations_with_replacement(range(count + 1), rank - 1):
        bounds = (0, *ends, count)
        yield [
            1 + dim * axes + position
            for dim in range(rank)
            for position in range(bounds[dim + 1] - bounds[dim])
        ]


@dataclass(frozen=True, slots=True, eq=False)
class NodeLookup:
    """Finds the node of a layout from its digits, combined into one number.

    Attributes:
        weights: int64[axes], the weight of each digit in the number.
        numbers: int64[V], the numbers of all layouts, ascending.
        order: int64[V], the nodes in the order of ``numbers``.
        table: int64[numbers], the node of every number; None if the table would be too large.
    """

    weights: Int64Array
    numbers: Int64Array
    order: Int64Array
    table: Int64Array | None

    @classmethod
    def of(cls, digits: Int64Array, base: int) -> NodeLookup:
        """Return the lookup of all layouts, [V, axes], whose digits are below ``base``."""
        weights = base ** np.arange(digits.shape[1], dtype=np.int64)
        numbers = digits @ weights
        order = np.argsort(numbers)
        table = None
        if base ** digits.shape[1] <= _LARGEST_TABLE:
            table = np.full(base ** digits.shape[1], -1, np.int64)
            table[numbers] = np.arange(len(numbers))
        return cls(weights, numbers[order], order, table)

    def nodes(self, numbers: Int64Array) -> Int64Array:
        """Return the nodes of these numbers; -1 for a number of no layout."""
        if self.table is not None:
            looked_up: Int64Array = self.table[numbers]
            return looked_up
        position = np.minimum(np.searchsorted(self.numbers, numbers), self.numbers.size - 1)
        nodes: Int64Array = np.where(self.numbers[position] == numbers, self.order[position], -1)
        return nodes


def subsets(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the non-empty subsets, each in the given order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(axes, n) for n in counts))


def arrangements(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the non-empty subsets in every order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.permutations(axes, n) for n in counts))
