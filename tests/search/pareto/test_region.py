"""Search regions: better than a frontier is what lies below a local upper bound."""

from __future__ import annotations

import itertools

import numpy as np

from tensoropt.search.pareto.region import SearchRegion


def test_what_is_better_than_a_frontier_lies_in_its_region() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 5, 9, 40):
        memory = np.sort(random.choice(100, size, replace=False))
        time = np.sort(random.choice(100, size, replace=False))[::-1]
        region = SearchRegion.below(memory, time)
        for x, y in itertools.product(range(-1, 101, 3), repeat=2):
            better = not ((memory <= x) & (time <= y)).any()
            assert bool(((x <= region.memory) & (y <= region.time)).any()) == better


def test_everywhere_is_where_nothing_is_known() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    region = SearchRegion.below(nothing, nothing)
    assert region.memory[0] > 2**62
    assert region.time[0] > 2**62
