"""How each point came about: an append-only store of derivations, and unrolling them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["UNIT", "Derivations"]

Int64Array = npt.NDArray[np.int64]

UNIT = 0
"""The identity of a point that chooses nothing, as an edge's costs do."""


class Derivations:
    """What the identities of points stand for.

    An identity is ``UNIT``, a leaf (one node's configuration) or a pair of earlier identities.
    Points carry one integer through the search however many configurations they stand for.
    """

    def __init__(self) -> None:
        unit = np.zeros(1, dtype=np.int64)
        # A leaf is stored as (-1 - node, configuration), a pair as its two identities.
        self._left = [unit]
        self._right = [unit]
        self._size = 1

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
        both = (left != UNIT) & (right != UNIT)
        if both.all():
            return self._append(left, right)
        result = np.where(left == UNIT, right, left)
        result[both] = self._append(left[both], right[both])
        return result

    def unroll(self, identities: Int64Array, nodes: int) -> npt.NDArray[np.int32]:
        """The configurations that ``identities`` stand for: int32[points, nodes], -1 for none."""
        left, right = np.concatenate(self._left), np.concatenate(self._right)
        result = np.full((identities.size, nodes), -1, dtype=np.int32)
        point, identity = np.arange(identities.size), identities
        while identity.size:
            first, second = left[identity], right[identity]
            leaf = first < 0
            result[point[leaf], -1 - first[leaf]] = second[leaf]
            pair = ~leaf & (identity != UNIT)
            point = np.concatenate([point[pair], point[pair]])
            identity = np.concatenate([first[pair], second[pair]])
        return result
