"""Passes over edges' tables: the least of rows and columns, for one weight and for several."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.search import Problem
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.bounds.passes import least_of_columns, least_of_rows, to_units, whole_units

Maker = Callable[[int], Problem]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 700), (9, 513), (30, 1030)])
@pytest.mark.parametrize("weights", [1, 3])
def test_the_least_of_columns_and_rows(shape: tuple[int, int], weights: int) -> None:
    random = np.random.default_rng(0)
    table = random.integers(0, 2**30, shape).astype(np.int32)
    for kernel, axis in ((least_of_columns, 0), (least_of_rows, 1)):
        near = random.integers(0, 2**30, (weights, shape[axis])).astype(np.int32)
        out = np.full((weights, shape[1 - axis]), 2**31 - 1, np.int32)
        kernel(table, near, out)
        for number in range(weights):
            more = near[number][:, None] if axis == 0 else near[number]
            assert np.array_equal(out[number], (table.astype(np.int64) + more).min(axis=axis))


@pytest.mark.parametrize("largest", [0, 1, 3, 2**30 - 1, 2**30, 10**12])
def test_units_are_rounded_down_and_fit(largest: int) -> None:
    scale = whole_units(largest)
    costs = np.array([0, largest // 3, largest])
    out = np.empty(3, np.int32)
    to_units(costs, scale, out)
    assert (out >= 0).all()
    assert (out < 2**30).all()
    assert (out / scale <= costs).all()
    assert (out / scale >= costs - 1 / scale).all()


def test_weights_together_have_the_bounds_of_each_alone(
    random_problem: Maker, not_negative: Callable[[Problem], bool]
) -> None:
    compared = 0
    for seed in range(60):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        table = WeightedBounds(problem)
        if table.has_memory:
            continue
        compared += 1
        pairs = [(1.0, 0.0), (1.0, 0.3), (1.0, 20.0)]
        together = table.all_bounds(pairs, 3, [None] * len(pairs))
        for pair, found in zip(pairs, together, strict=True):
            alone = table.bounds(*pair, 3)
            assert found.least == alone.least
            assert np.array_equal(found.min_marginals, alone.min_marginals)
            assert np.array_equal(found.messages, alone.messages)
    assert compared > 5
