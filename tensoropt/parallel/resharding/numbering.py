"""All layouts of a tensor of one rank on one mesh as rows of digits, and where each of them is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["Places", "all_digits", "arrangements", "subsets"]


# Numbers of layouts are looked up in a table up to this size, else by bisection.
_LARGEST_TABLE = 2**22


def all_digits(axes: int, rank: int, reducers: int) -> Int64Array:
    """int64[V, axes], every layout: unused axes are replicated or partial, the others lie in order
    on dimensions.

    Args:
        axes: how many the mesh has.
        rank: of the tensor.
        reducers: by how many reducers a layout may be partial.
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
        for place in range(count):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, used[:, place, None, None]] = cuts[:, place, None]
        for place in range(left):
            rows = np.arange(len(used))[:, None, None]
            cut, option = np.arange(len(cuts))[:, None], np.arange(len(options))
            block[rows, cut, option, unused[:, place, None, None]] = options[:, place]
        blocks.append(block.reshape(len(used) * len(cuts) * len(options), axes))
    return np.concatenate(blocks)


def _cuts(count: int, rank: int, axes: int) -> Iterator[list[int]]:
    """Digits for the ways to cut a sequence of axes into ``rank`` runs, empty ones included."""
    if rank == 0:
        if not count:
            yield []
        return
    for ends in itertools.combinations_with_replacement(range(count + 1), rank - 1):
        bounds = (0, *ends, count)
        yield [
            1 + dim * axes + place
            for dim in range(rank)
            for place in range(bounds[dim + 1] - bounds[dim])
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where layouts are, by one number for all their digits.

    Attributes:
        weights: int64[axes], what a digit counts in that number.
        numbers: int64[V], of all layouts, ascending.
        order: int64[V], their nodes.
        table: int64[all numbers], the node of each, where there are not too many.
    """

    weights: Int64Array
    numbers: Int64Array
    order: Int64Array
    table: Int64Array | None

    @classmethod
    def of(cls, digits: Int64Array, base: int) -> Places:
        """Of all layouts, [V, axes], whose digits are below a base."""
        weights = base ** np.arange(digits.shape[1], dtype=np.int64)
        numbers = digits @ weights
        order = np.argsort(numbers)
        table = None
        if base ** digits.shape[1] <= _LARGEST_TABLE:
            table = np.full(base ** digits.shape[1], -1, np.int64)
            table[numbers] = np.arange(len(numbers))
        return cls(weights, numbers[order], order, table)

    def nodes(self, numbers: Int64Array) -> Int64Array:
        """The layouts of these numbers; -1 where there is none."""
        if self.table is not None:
            known: Int64Array = self.table[numbers]
            return known
        found = np.minimum(np.searchsorted(self.numbers, numbers), self.numbers.size - 1)
        nodes: Int64Array = np.where(self.numbers[found] == numbers, self.order[found], -1)
        return nodes


def subsets(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets, each in the given order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(axes, n) for n in counts))


def arrangements(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Non-empty subsets in every order."""
    counts = range(1, len(axes) + 1)
    return tuple(itertools.chain.from_iterable(itertools.permutations(axes, n) for n in counts))
