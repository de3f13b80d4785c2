"""Products of many rows at once, by threads and with the coarse look first, change no point."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Node, Problem, frontier_tracking, threads
from tensoropt.search.exact import through_edge as through_edge_module
from tensoropt.search.flat.joint_slots import joint_keys
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.table import Table, multiply


def random_table(rng: np.random.Generator, rows: int, top: int, store: BackPointers) -> Table:
    sizes = rng.integers(0, 30, rows)
    count = int(sizes.sum())
    groups = np.repeat(np.arange(rows), sizes)
    memory, time = rng.integers(0, top, (2, count))
    points = Table.single(memory, time, store.leaves(0, count))
    return points.group(groups, rows)


def frontier_of(costs: set[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(
        one
        for one in costs
        if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in costs)
    )


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
def test_multiply_is_the_union_of_products(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_A_THREAD", block)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        top = int(rng.choice([5, 100, 10**15]))
        store = BackPointers()
        left, right = (random_table(rng, 5, top, store) for _ in range(2))
        triples = tuple(rng.integers(0, high, 9) for high in (5, 5, 4))
        found = multiply(left, right, triples, 4, store)  # type: ignore[arg-type]
        assert found.rows == 4
        for row in range(4):
            sums = {
                (
                    int(left.memory[i] + right.memory[j]),
                    int(left.time[i] + right.time[j]),
                )
                for a, b, o in zip(*triples, strict=True)
                if o == row
                for i, j in pairs(
                    range(left.offsets[a], left.offsets[a + 1]),
                    range(right.offsets[b], right.offsets[b + 1]),
                )
            }
            part = slice(found.offsets[row], found.offsets[row + 1])
            costs = zip(found.memory[part].tolist(), found.time[part].tolist(), strict=True)
            assert list(costs) == frontier_of(sums)


@pytest.mark.parametrize("memory_on_edges", [False, True])
def test_small_blocks_find_the_same_frontier(
    memory_on_edges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A residual block of four nodes with thirty configurations each."""
    rng = np.random.default_rng(5)
    memory = rng.integers(1, 2000, (4, 30))
    times = 10**6 // memory + rng.integers(0, 50, (4, 30))
    nodes = tuple(Node(f"n{i}", memory[i], times[i]) for i in range(4))
    edges = tuple(
        Edge.of(
            source,
            target,
            rng.integers(0, 12, 30),
            rng.integers(0, 12, 30),
            rng.integers(0, 300, (12, 12)) * memory_on_edges,
            rng.integers(0, 500, (12, 12)),
        )
        for source, target in ((0, 1), (1, 2), (2, 3), (0, 3))
    )
    problem = Problem(nodes, edges)
    truth = brute_force(problem)
    assert frontier_tracking(problem).same_costs(truth)
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 50)
    monkeypatch.setattr(through_edge_module, "_TRIPLES", 100)
    found = frontier_tracking(problem)
    assert found.same_costs(truth)
    costs = problem.costs(found.strategies)
    assert np.array_equal(costs[0], found.memory)
    assert np.array_equal(costs[1], found.time)


@pytest.mark.parametrize("top", [800, 10**6, 10**15])
def test_products_of_long_frontiers(top: int) -> None:
    """The points are so many that a coarse look comes first."""
    rng = np.random.default_rng(top)
    left, right = (
        Table(np.array([0, 300, 700]), *frontier, np.arange(700))
        for frontier in (
            [
                np.concatenate([np.sort(rng.choice(top, size, False))[::sign] for size in sizes])
                for sign in (1, -1)
            ]
            for sizes in ((300, 400), (300, 400))
        )
    )
    rows = np.array([0, 0, 1]), np.array([1, 0, 1]), np.zeros(3, dtype=np.int64)
    found = multiply(left, right, rows, 1, BackPointers())
    memory, time = (
        np.concatenate(
            [
                np.add.outer(one[left.offsets[a] :][: left.sizes[a]], other[slice_]).ravel()
                for a, b in ((0, 1), (0, 0), (1, 1))
                for slice_ in [slice(right.offsets[b], right.offsets[b + 1])]
            ]
        )
        for one, other in ((left.memory, right.memory), (left.time, right.time))
    )
    order = reduce_points(memory, time)
    assert memory.size > 3e5
    assert np.array_equal(found.memory, memory[order])
    assert np.array_equal(found.time, time[order])


def test_joint_keys_number_combinations_in_order() -> None:
    keys, examples = joint_keys([np.array([1, 0, 1, 0]), np.array([2, 2, 0, 2])], 4)
    assert keys.tolist() == [2, 0, 1, 0]
    assert examples.tolist() == [1, 2, 0]
    keys, examples = joint_keys([], 3)
    assert keys.tolist() == [0, 0, 0]
    assert examples.tolist() == [0]


def test_rows_are_taken_in_any_order() -> None:
    table = Table.single(np.arange(4), np.arange(4)).group(np.array([0, 1, 1, 2]), 4)
    assert table.sizes.tolist() == [1, 1, 1, 0]
    taken = table.take(np.array([3, 2, 0, 2]))
    assert taken.sizes.tolist() == [0, 1, 1, 1]
    assert taken.memory.tolist() == [3, 0, 3]
