"""An append-only store that says how each point came about, and how to unroll it to a strategy."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.limits import DEFAULT_LIMITS

__all__ = ["BackPointers"]


class BackPointers:
    """The store of identities.

    An identity is a leaf (one node's configuration), a pair of earlier identities, or 0 for a point
    that chooses no configuration, as the costs of an edge do. A point carries one integer through
    the search, however many configurations it stands for.

    Args:
        most_points: the most points of one table, see `SearchLimits.table_points`.
        additions: the most additions of all tables, see `SearchLimits.table_additions`.

    Attributes:
        additions: the additions that are left.
    """

    def __init__(
        self,
        most_points: int = DEFAULT_LIMITS.table_points,
        additions: float = DEFAULT_LIMITS.table_additions,
    ) -> None:
        self.most_points = most_points
        self.additions = additions  # that are left
        unit = np.zeros(1, dtype=np.int64)
        # A leaf is stored as (-1 - node, configuration), a pair as two identities.
        self._left = [unit]
        self._right = [unit]
        self._size = 1

    def spend(self, additions: float) -> None:
        """Subtract the additions of a table from those that are left.

        Raises:
            SearchSizeError: if none are left.
        """
        self.additions -= additions
        if self.additions < 0:
            raise SearchSizeError("the tables of the search take more additions than they may.")

    def branch(
        self,
        most_points: int = DEFAULT_LIMITS.table_points,
        additions: float = DEFAULT_LIMITS.table_additions,
    ) -> BackPointers:
        """Return a store that begins with these identities; neither learns of later ones of the
        other.

        Args:
            most_points: the most points of one of its tables.
            additions: the most additions of all of its tables.
        """
        self._left, self._right = [np.concatenate(self._left)], [np.concatenate(self._right)]
        store = BackPointers(most_points, additions)
        store._left, store._right, store._size = [*self._left], [*self._right], self._size
        return store

    def __len__(self) -> int:
        return self._size

    def _append(self, left: Int64Array, right: Int64Array) -> Int64Array:
        self._left.append(left)
        self._right.append(right)
        start = self._size
        self._size += left.size
        return np.arange(start, self._size)

    def leaves(self, node: int, configurations: int) -> Int64Array:
        """Return new identities for all configurations of ``node``."""
        return self._append(
            np.full(configurations, -1 - node, dtype=np.int64), np.arange(configurations)
        )

    def pairs(self, left: Int64Array, right: Int64Array) -> Int64Array:
        """Return the identities of points that consist of ``left[i]`` and ``right[i]``."""
        if not left.any():
            return right
        if not right.any():
            return left
        both = (left != 0) & (right != 0)
        if both.all():
            return self._append(left, right)
        result = np.where(left == 0, right, left)
        result[both] = self._append(left[both], right[both])
        return result

    def unroll(self, identities: Int64Array, nodes: int) -> Int32Array:
        """Return the configurations that identities stand for: int32[points, nodes], -1 for
        none."""
        return self.unroll_sets(identities[:, None], nodes)

    def unroll_sets(self, identities: Int64Array, nodes: int) -> Int32Array:
        """Return the configurations that sets of identities stand for.

        Args:
            identities: int64[sets, any].
            nodes: the number of nodes of the problem.

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
            if identity == 0:
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
