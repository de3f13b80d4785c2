"""The frontier of a row with few products, by inserting one product after the other.

For few products this is faster than writing and merging sorted runs.
"""

from __future__ import annotations

import numba

from tensoropt.arrays import Int64Array

__all__ = ["Points", "insert", "products"]

Points = tuple[Int64Array, Int64Array]
"""Memory and time."""


@numba.njit(cache=True, nogil=True)
def products(left_size: Int64Array, right_size: Int64Array) -> int:
    """Return the number of products of some pairs of ranges."""
    work = 0
    for block in range(left_size.size):
        work += left_size[block] * right_size[block]
    return work


@numba.njit(cache=True, nogil=True)
def insert(
    frontier: Int64Array, size: int, left: Points, right: Points, left_start: int, right_start: int
) -> int:
    """Insert the products of two ranges into a frontier of ``size`` points, and return its new
    size.

    Of equal points the earlier one is kept.
    """
    (left_memory, left_time), (right_memory, right_time) = left, right
    for shift in range(left_memory.size):
        for point in range(right_memory.size):
            memory = left_memory[shift] + right_memory[point]
            time = left_time[shift] + right_time[point]
            place, end = 0, size  # of the first that takes more memory
            while place < end:
                middle = (place + end) // 2
                if frontier[middle, 0] <= memory:
                    place = middle + 1
                else:
                    end = middle
            if place > 0 and frontier[place - 1, 1] <= time:
                continue
            if place > 0 and frontier[place - 1, 0] == memory:
                place -= 1
            beaten = place
            while beaten < size and frontier[beaten, 1] >= time:
                beaten += 1
            shifted = place + 1 - beaten
            if shifted > 0:
                for row in range(size - 1, beaten - 1, -1):
                    for column in range(4):
                        frontier[row + 1, column] = frontier[row, column]
            elif shifted < 0:
                for row in range(beaten, size):
                    for column in range(4):
                        frontier[row + shifted, column] = frontier[row, column]
            size += shifted
            frontier[place, 0] = memory
            frontier[place, 1] = time
            frontier[place, 2] = left_start + shift
            frontier[place, 3] = right_start + point
    return size
