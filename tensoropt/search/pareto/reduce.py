"""The inner loop of the search on plain arrays: Algorithm 1, for many sets of points at once.

Compiled kernels are in the modules that use them. What keeps their compilation short: they get
arrays of one kind (`read_only`), and copy parts of arrays by loops, as an assignment of one part to
another comes with all that it takes to word the error of unequal shapes.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import BoolArray, Int64Array, offsets_of

__all__ = ["drop_equal_memory", "read_only", "reduce_rows", "row_offsets"]

Element = TypeVar("Element", bound=np.generic)


def read_only(array: npt.NDArray[Element]) -> npt.NDArray[Element]:
    """A view that cannot be written, of an array that may be: kernels are compiled anew for each
    of the two, so those that get either kind get this one."""
    view = array.view()
    view.flags.writeable = False
    return view


def row_offsets(rows: Int64Array, count: int) -> Int64Array:
    """int64[count + 1]: where each row starts among points that are sorted by ``rows``."""
    return offsets_of(np.bincount(rows, minlength=count))


def drop_equal_memory(kept: Int64Array, rows: Int64Array, memory: Int64Array) -> Int64Array:
    """Of ``kept`` points whose times fall within a row, the last of each run of equal memory."""
    row, cost = rows[kept], memory[kept]
    last = np.ones(kept.size, dtype=bool)
    last[:-1] = (row[1:] != row[:-1]) | (cost[1:] != cost[:-1])
    survivors: Int64Array = kept[last]
    return survivors


def _order(rows: Int64Array, memory: Int64Array) -> Int64Array:
    """Stable order by row, then memory."""
    lowest = int(memory.min())
    span = int(memory.max()) - lowest + 1
    key_bits = ((int(rows.max()) + 1) * span).bit_length()
    index_bits = rows.size.bit_length()
    if key_bits > 62:
        return np.asarray(np.lexsort((memory, rows)), dtype=np.int64)
    key: Int64Array = rows * span + (memory - lowest)
    if key_bits + index_bits > 62:
        return np.argsort(key, kind="stable")
    # Sorting the values themselves is several times faster than sorting indices by them.
    key <<= index_bits
    key |= np.arange(rows.size)
    key.sort()
    key &= (1 << index_bits) - 1
    return key


def _falling(rows: Int64Array, time: Int64Array) -> BoolArray:
    """Which points of sorted ``rows`` have less time than every earlier point of their row."""
    lowest = int(time.min())
    span = int(time.max()) - lowest + 1
    if span * (int(rows[-1]) + 1) < 2**62:
        level = time - lowest
    else:
        _, level = np.unique(time, return_inverse=True)
        span = int(level.max()) + 1
    # Later rows lie wholly below earlier ones, so that one running minimum serves them all.
    level = level - rows * span
    falling = np.ones(level.size, dtype=bool)
    np.less(level[1:], np.minimum.accumulate(level)[:-1], out=falling[1:])
    return falling


def reduce_rows(rows: Int64Array, memory: Int64Array, time: Int64Array) -> Int64Array:
    """Reduce each row of points to its frontier (paper, Algorithm 1), all rows at once.

    Args:
        rows: int64[P] >= 0, the row that each point belongs to, in any order.
        memory, time: int64[P].

    Returns:
        Indices of the survivors, by row, then ascending memory (time then descends strictly). Of
        points with equal costs the first in the input survives. O(P log P).
    """
    if rows.size == 0:
        return np.zeros(0, dtype=np.int64)
    order = _order(rows, memory)
    # Equal memories come in input order rather than by time: the running minimum then keeps a
    # falling run of them, of which the last is the frontier's.
    kept = order[_falling(rows[order], time[order])]
    return drop_equal_memory(kept, rows, memory)
