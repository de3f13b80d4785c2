"""The combinations of slots that the states of a node have on several edges."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["joint_keys", "numbered"]

# Most possible keys that are counted; more are sorted. Both number them alike.
_FEW_KEYS = 1 << 16


def joint_keys(columns: Sequence[Int64Array], states: int) -> tuple[Int64Array, Int64Array]:
    """Number the distinct combinations of slots that states have on several edges.

    Args:
        columns: for each edge int64[states], the slot of each state.
        states: the number of states; without ``columns`` they have one combination.

    Returns:
        int64[states], each state's combination, and int64[combinations], a state that has it.
            Combinations are numbered in lexicographic order of their slots.
    """
    left = np.array(columns, dtype=np.int64).reshape(-1, states)
    key, first, joined = _joined(left)
    for column in left[joined:]:
        keys = key * (int(column.max()) + 1) + column
        _, first, key = np.unique(keys, return_index=True, return_inverse=True)
    return key, first


@numba.njit(cache=True, nogil=True)
def numbered(keys: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Number the keys that occur among those below ``count``.

    Returns the number of every key, and the first position of each distinct key.
    """
    place = np.full(count, -1, np.int64)
    for state in range(keys.size):
        if place[keys[state]] < 0:
            place[keys[state]] = state
    first = np.empty(min(count, keys.size), np.int64)
    size = 0
    for key in range(count):
        if place[key] >= 0:
            first[size] = place[key]
            place[key] = size
            size += 1
    number = np.empty(keys.size, np.int64)
    for state in range(keys.size):
        number[state] = place[keys[state]]
    return number, first[:size].copy()


@numba.njit(cache=True, nogil=True)
def _joined(columns: Int64Array) -> tuple[Int64Array, Int64Array, int]:
    """Join columns to keys one after the other, while few keys are possible.

    Returns the keys, the first position of each distinct key, and the number of joined columns.
    """
    key = np.zeros(columns.shape[1], np.int64)
    first = np.zeros(1, np.int64)
    for number in range(columns.shape[0]):
        count = columns[number].max() + 1
        if first.size * count > _FEW_KEYS:
            return key, first, number
        key, first = numbered(key * count + columns[number], first.size * count)
    return key, first, columns.shape[0]
