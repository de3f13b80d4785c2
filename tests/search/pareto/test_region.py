"""Search regions: better than a frontier is what lies below a local upper bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tensoropt.search.pareto.region import SearchRegion


@pytest.mark.parametrize("most", [512, 3, 1])
def test_what_is_better_than_a_frontier_lies_in_its_region(most: int) -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 5, 9, 40):
        memory = np.sort(random.choice(100, size, replace=False))
        time = np.sort(random.choice(100, size, replace=False))[::-1]
        at_memory, at_time = SearchRegion.below(memory, time).coarse(most).upper_bounds
        assert at_memory.size <= max(most, 1) or most >= size + 1
        for x, y in itertools.product(range(-1, 101, 3), repeat=2):
            better = not ((memory <= x) & (time <= y)).any()
            inside = bool(((x <= at_memory) & (y <= at_time)).any())
            assert inside >= better
            if most == 512:
                assert inside == better


def test_everywhere_is_where_nothing_is_known() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert np.isinf(SearchRegion.below(nothing, nothing).upper_bounds).all()
