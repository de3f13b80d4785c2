"""Products over (min, +) that leave states out, against all sums."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array
from tensoropt.search.scalar.least_sums import least_sums, table_units

SCALE, LEAST = 4.0, 7.0


def product(left: Int32Array, right: Int32Array) -> tuple[Float64Array, int]:
    out = np.empty((len(left), right.shape[1]))
    compared, low, high = least_sums(left, right, SCALE, LEAST, out)
    assert (low, high) == (out.min(), out.max())
    return (out - LEAST) * SCALE, compared


def test_products_are_those_of_all_sums() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        rows, states, columns = random.integers(1, 40, 3)
        largest = random.choice([2, 50, 2**30 - 1])  # few numbers make many states alike
        left = random.integers(0, largest, (rows, states)).astype(np.int32)
        right = random.integers(0, largest, (states, columns)).astype(np.int32)
        right[random.integers(0, states, states // 2)] = right[0]
        sums = left[:, :, None].astype(np.int64) + right[None]
        found, _ = product(left, right)
        assert np.array_equal(found, sums.min(axis=1))


def test_states_that_cost_more_than_another_everywhere_are_left_out() -> None:
    random = np.random.default_rng(1)
    left = random.integers(0, 10, (50, 100)).astype(np.int32)
    left[:, 1:] += 1000
    right = random.integers(0, 10, (100, 30)).astype(np.int32)
    found, compared = product(left, right)
    assert np.array_equal(found, (left[:, :1] + right[:1]))
    assert compared == (50 + 100) * 30  # one state of each row, and the pivot with all


def test_units_of_a_table_are_rounded_down_either_way() -> None:
    random = np.random.default_rng(2)
    table, more = random.uniform(0, 9, (25, 30)), random.uniform(0, 1, 40)
    rows, columns = random.integers(0, 25, 12), random.integers(0, 30, 40)
    wanted = np.floor((table[rows][:, columns] + more) * 16).astype(np.int32)
    assert np.array_equal(table_units(table, False, rows, columns, more, 16.0), wanted)
    across = np.ascontiguousarray(table.T)
    assert np.array_equal(table_units(across, True, rows, columns, more, 16.0), wanted)
