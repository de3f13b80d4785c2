"""Algorithm 1 of the paper for many sets of points at once: keep the points that none dominates.

Compiled kernels are in the modules that use them. Two habits shorten their compilation: arguments
are arrays of one kind (`read_only`), and ranges are copied by loops, since the assignment of slices
compiles the error message for unequal shapes, too.
"""

from __future__ import annotations

from typing import TypeVar

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array

__all__ = ["read_only", "reduce_points", "reduce_rows", "row_offsets"]

Element = TypeVar("Element", bound=np.generic)


def read_only(array: npt.NDArray[Element]) -> npt.NDArray[Element]:
    """Return a read-only view of an array.

    Numba compiles a kernel anew for writable and for read-only arrays; kernels that get both kinds
    get this view.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def row_offsets(rows: Int64Array, count: int) -> Int64Array:
    """int64[count + 1]: where each row begins among points that are sorted by ``rows``."""
    offsets: Int64Array = np.searchsorted(rows, np.arange(count + 1))
    return offsets


def reduce_points(memory: Int64Array, time: Int64Array) -> Int64Array:
    """Apply `reduce_rows` to points of one row."""
    return reduce_rows(np.zeros(memory.size, dtype=np.int64), memory, time)


def reduce_rows(rows: Int64Array, memory: Int64Array, time: Int64Array) -> Int64Array:
    """Reduce each row of points to its frontier (paper, Algorithm 1), all rows at once.

    Args:
        rows: int64[P] >= 0, the row that each point belongs to, in any order.
        memory, time: int64[P].

    Returns:
        Indices of the survivors, by row, then ascending memory (time then descends strictly). Of
        points with equal costs the first in the input survives. O(P log P).
    """
    order = np.lexsort((time, memory, rows))
    survivors: Int64Array = order[_falls(rows[order], time[order])]
    return survivors


@numba.njit(cache=True, nogil=True)
def _falls(rows: Int64Array, time: Int64Array) -> npt.NDArray[np.bool_]:
    """Mark the points of sorted rows with less time than every earlier point of their row."""
    falls = np.zeros(rows.size, np.bool_)
    least = np.int64(0)
    for point in range(rows.size):
        if point == 0 or rows[point] != rows[point - 1] or time[point] < least:
            least = time[point]
            falls[point] = True
    return falls
