"""Laws of products and unions of frontiers against the definition; what a frontier answers."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.search import Frontier
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.frontier import ELIMINATIONS
from tensoropt.search.pareto.reduce import reduce_points, reduce_rows
from tensoropt.search.pareto.table import Table, multiply

Costs = list[tuple[int, int]]

# Few values give ties; huge ones give keys that do not fit a machine word.
values = st.one_of(st.integers(-3, 4), st.integers(0, 2**60))
cost_sets = st.lists(st.tuples(values, values), min_size=1, max_size=25)


ROW = np.zeros(1, dtype=np.int64)


def frontier(costs: Costs, pointers: BackPointers, node: int = 0) -> Table:
    """One row: the frontier of some points."""
    memory, time = np.array(costs, dtype=np.int64).T
    points = Table.single(memory, time, pointers.leaves(node, len(costs)))
    return points.group(np.zeros(len(costs), dtype=np.int64), 1)


def product(left: Table, right: Table, pointers: BackPointers) -> Table:
    return multiply(left, right, (ROW, ROW, ROW), 1, pointers)


def union(*tables: Table) -> Table:
    parts = (
        np.concatenate([getattr(t, n) for t in tables]) for n in ("memory", "time", "identity")
    )
    points = Table.single(*parts)
    return points.group(np.zeros(points.rows, dtype=np.int64), 1)


def costs_of(found: Table) -> Costs:
    return list(zip(found.memory.tolist(), found.time.tolist(), strict=True))


def undominated(costs: Costs) -> Costs:
    """The frontier by its definition: no other point is as good in both costs."""
    distinct = set(costs)
    return sorted(
        one
        for one in distinct
        if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in distinct)
    )


@given(cost_sets)
def test_a_group_is_the_definition_and_idempotent(costs: Costs) -> None:
    pointers = BackPointers()
    once = frontier(costs, pointers)
    assert costs_of(once) == undominated(costs)
    twice = union(once)
    assert costs_of(twice) == costs_of(once)
    assert twice.identity.tolist() == once.identity.tolist()
    # Identities follow their points, and the first of equals is the one that stays.
    chosen = pointers.unroll(once.identity, 1)[:, 0].tolist()
    assert chosen == [costs.index(cost) for cost in costs_of(once)]
    memory, time = np.array(costs, dtype=np.int64).T
    assert reduce_points(memory, time).tolist() == chosen


@given(st.lists(st.tuples(st.integers(0, 3), values, values), max_size=25))
def test_rows_are_reduced_each_by_itself(points: list[tuple[int, int, int]]) -> None:
    rows, memory, time = np.array(points, dtype=np.int64).reshape(-1, 3).T
    found = reduce_rows(rows, memory, time).tolist()
    expected = []
    for row in range(4):
        costs = [cost for own, *cost in points if own == row]
        numbers = [number for number, (own, *_) in enumerate(points) if own == row]
        own = undominated([(memory, time) for memory, time in costs])
        expected += [numbers[costs.index(list(cost))] for cost in own]
    assert found == expected


@given(cost_sets, cost_sets)
def test_product_is_the_definition_and_commutes(left: Costs, right: Costs) -> None:
    pointers = BackPointers()
    one, other = frontier(left, pointers, 0), frontier(right, pointers, 1)
    found = product(one, other, pointers)
    sums = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs(left, right)]
    assert costs_of(found) == undominated(sums)
    assert costs_of(product(other, one, pointers)) == costs_of(found)
    for (first, second), cost in zip(
        pointers.unroll(found.identity, 2).tolist(), costs_of(found), strict=True
    ):
        assert (left[first][0] + right[second][0], left[first][1] + right[second][1]) == cost


@given(cost_sets, cost_sets, cost_sets)
def test_product_and_union_associate_and_distribute(a: Costs, b: Costs, c: Costs) -> None:
    store = BackPointers()
    x, y, z = (frontier(costs, store) for costs in (a, b, c))
    assert costs_of(product(product(x, y, store), z, store)) == costs_of(
        product(x, product(y, z, store), store)
    )
    assert costs_of(union(union(x, y), z)) == costs_of(union(x, union(y, z)))
    assert costs_of(union(x, y, z)) == undominated(a + b + c)
    assert costs_of(product(x, union(y, z), store)) == costs_of(
        union(product(x, y, store), product(x, z, store))
    )


@given(cost_sets, cost_sets)
def test_union_commutes_and_has_no_use_for_repeats(a: Costs, b: Costs) -> None:
    x, y = frontier(a, BackPointers()), frontier(b, BackPointers())
    assert costs_of(union(x, y)) == costs_of(union(y, x))
    assert costs_of(union(x, x)) == costs_of(x)


def test_unit_changes_nothing_and_needs_no_identity() -> None:
    store = BackPointers()
    some = frontier([(1, 5), (2, 3)], store)
    size = len(store)
    assert product(some, Table.unit(), store).identity.tolist() == some.identity.tolist()
    assert len(store) == size


def test_large_products_are_taken_in_blocks() -> None:
    rng = np.random.default_rng(0)
    store = BackPointers()
    memory = np.unique(rng.integers(0, 10**9, 3000))
    falling = frontier(list(zip(memory.tolist(), memory[::-1].tolist(), strict=True)), store)
    found = product(falling, falling, store)
    lowest = np.minimum.accumulate(found.time)
    assert (np.diff(lowest) < 0).all()
    sample = rng.integers(0, memory.size, (2000, 2))
    sums = memory[sample].sum(axis=1), falling.time[sample].sum(axis=1)
    at = np.searchsorted(found.memory, sums[0], side="right") - 1
    assert (found.time[at] <= sums[1]).all()


FRONTIER = Frontier(np.array([1, 4, 9]), np.array([30, 20, 5]), np.array([[0], [1], [2]]))


def test_points_are_found_by_limit() -> None:
    assert FRONTIER.fastest() == 2
    assert FRONTIER.fastest(9) == 2
    assert FRONTIER.fastest(8) == 1
    with pytest.raises(InfeasibleError, match=r"limit of 0 bytes\. Got 1 bytes"):
        FRONTIER.fastest(0)


def test_a_frontier_is_read_like_a_sequence() -> None:
    assert len(FRONTIER) == 3
    assert [(p.memory, p.time, p.strategy.tolist()) for p in FRONTIER] == [
        (1, 30, [0]),
        (4, 20, [1]),
        (9, 5, [2]),
    ]
    assert dict(FRONTIER.eliminations) == dict.fromkeys(ELIMINATIONS, 0)
    with pytest.raises(ValueError, match="read-only"):
        FRONTIER.memory[0] = 0


def test_frontiers_are_compared() -> None:
    better = Frontier(np.array([1, 4]), np.array([30, 5]), np.array([[0], [1]]))
    assert better.dominates(FRONTIER)
    assert not FRONTIER.dominates(better)
    assert FRONTIER.dominates(FRONTIER)
    assert FRONTIER.same_costs(FRONTIER)
    assert not FRONTIER.same_costs(better)


@pytest.mark.parametrize(
    ("memory", "time", "strategies"),
    [
        ([1, 1], [3, 2], [[0], [1]]),
        ([1, 2], [2, 2], [[0], [1]]),
        ([1, 2], [3, 2], [[0]]),
        ([], [], np.zeros((0, 1), np.int32)),
    ],
)
def test_what_is_no_frontier_is_refused(
    memory: list[int], time: list[int], strategies: list[list[int]]
) -> None:
    with pytest.raises(OptionError, match=r"Got"):
        Frontier(np.array(memory), np.array(time), np.array(strategies))
