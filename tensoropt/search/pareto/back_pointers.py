"""How each point came about: an append-only store of back pointers, and unrolling them."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.limits import DEFAULT_LIMITS

__all__ = ["UNIT", "BackPointers"]


UNIT = 0
"""The identity of a point that chooses nothing, as an edge's costs do."""


class BackPointers:
    """What the identities of points stand for.

    An identity is ``UNIT``, a leaf (one node's configuration) or a pair of earlier identities.
    Points carry one integer through the search however many configurations they stand for.

    Args:
        most_points: that one table of points may hold, see `SearchLimits.table_points`.
        additions: that all tables may take, see `SearchLimits.table_additions`.
    """

    def __init__(
        self,
        most_points: int = DEFAULT_LIMITS.table_points,
        additions: float = DEFAULT_LIMITS.table_additions,
    ) -> None:
        self.most_points = most_points
        self.additions = additions  # that are left
        unit = np.zeros(1, dtype=np.int64)
        # A leaf is stored as (-1 - node, configuration), a pair as its two identities.
        self._left = [unit]
        self._right = [unit]
        self._size = 1

    def spend(self, additions: float) -> None:
        """Count additions that a table takes.

        Raises:
            SearchSizeError: if all tables together take more than they may.
        """
        self.additions -= additions
        if self.additions < 0:
            raise SearchSizeError("the tables of the search take more additions than they may.")

    def branch(
        self,
        most_points: int = DEFAULT_LIMITS.table_points,
        additions: float = DEFAULT_LIMITS.table_additions,
    ) -> BackPointers:
        """What knows all of these, and whose own these do not learn of.

        Args:
            most_points: that one of its tables may hold.
            additions: that all of its tables may take.
        """
        self._left, self._right = [np.concatenate(self._left)], [np.concatenate(self._right)]
        found = BackPointers(most_points, additions)
        found._left, found._right, found._size = [*self._left], [*self._right], self._size
        return found

    def __len__(self) -> int:
        return self._size

    def _append(self, left: Int64Array, right: Int64Array) -> Int64Array:
        self._left.append(left)
        self._right.append(right)
        start = self._size
        self._size += left.size
        return np.arange(start, self._size)

    def leaves(self, node: int, configurations: int) -> Int64Array:
        """New identities for all configurations of ``node``."""
        return self._append(
            np.full(configurations, -1 - node, dtype=np.int64), np.arange(configurations)
        )

    def pairs(self, left: Int64Array, right: Int64Array) -> Int64Array:
        """Identities of the points made of ``left[i]`` and ``right[i]`` together."""
        if not left.any():  # all are units
            return right
        if not right.any():
            return left
        both = (left != UNIT) & (right != UNIT)
        if both.all():
            return self._append(left, right)
        result = np.where(left == UNIT, right, left)
        result[both] = self._append(left[both], right[both])
        return result

    def unroll(self, identities: Int64Array, nodes: int) -> Int32Array:
        """The configurations that ``identities`` stand for: int32[points, nodes], -1 for none."""
        return self.unroll_sets(identities[:, None], nodes)

    def unroll_sets(self, identities: Int64Array, nodes: int) -> Int32Array:
        """The configurations that the identities of each set stand for together.

        Args:
            identities: int64[sets, any].
            nodes: of the problem.

        Returns:
            int32[sets, nodes], -1 for none.
        """
        result = np.full((len(identities), nodes), -1, dtype=np.int32)
        own = np.ascontiguousarray(identities)
        _unroll(np.concatenate(self._left), np.concatenate(self._right), own, result)
        return result


@numba.njit(cache=True, nogil=True)
def _unroll(
    left: Int64Array, right: Int64Array, identities: Int64Array, result: Int32Array
) -> None:
    stack = np.empty(1024, np.int64)
    for place in range(identities.size):
        point, own = divmod(place, identities.shape[1])
        stack[0] = identities[point, own]
        height = 1
        while height > 0:
            height -= 1
            identity = stack[height]
            if identity == UNIT:
                continue
            if left[identity] < 0:
                result[point, -1 - left[identity]] = right[identity]
                continue
            if height + 2 > stack.size:
                wider = np.empty(2 * stack.size, np.int64)
                for at in range(stack.size):
                    wider[at] = stack[at]
                stack = wider
            stack[height] = left[identity]
            stack[height + 1] = right[identity]
            height += 2
