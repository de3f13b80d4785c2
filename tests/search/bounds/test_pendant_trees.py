"""What hangs on a graph, spanning trees, and bounds that are exact where a graph is a tree."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.search import Edge, Node, Problem
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.bounds.pendant_trees import pendant_edges, spanning_tree
from tensoropt.search.tolerances import ROUNDING

Maker = Callable[[int], Problem]

# Costs of edges are rounded down to some 2**-30 of the largest.
UNITS = 1e-8


def trees(count: int) -> list[Problem]:
    """Random trees of three to six nodes, whose edges go either way."""
    random = np.random.default_rng(5)
    found = []
    for _ in range(count):
        sizes = random.integers(1, 4, int(random.integers(3, 7))).tolist()
        nodes = tuple(
            Node(str(place), random.integers(0, 50, size), random.integers(0, 50, size))
            for place, size in enumerate(sizes)
        )
        edges = []
        for node in range(1, len(sizes)):
            ends = int(random.integers(0, node)), node
            slots = [random.integers(0, 2, sizes[end]) for end in ends]
            tables = np.zeros((2, 2), dtype=np.int64), random.integers(0, 50, (2, 2))
            edges.append(Edge.of(*ends, *slots, *tables))
        found.append(Problem(nodes, tuple(edges)))
    return found


def test_bounds_of_a_tree_are_exact_without_a_sweep() -> None:
    for problem in trees(60):
        ranges = [range(node.configurations) for node in problem.nodes]
        strategies = np.array(list(itertools.product(*ranges)), dtype=np.int64)
        memory, time = problem.costs(strategies)
        table = WeightedBounds(problem)
        for worth in (0.0, 0.5, 20.0):
            cost = time + worth * memory
            found = table.bounds(1.0, worth, sweeps=0)
            assert found.least == pytest.approx(cost.min(), rel=UNITS)
            for node, start in enumerate(table.start[:-1]):
                least = np.full(problem.nodes[node].configurations, np.inf)
                np.minimum.at(least, strategies[:, node], cost)
                own = found.min_marginals[start : start + least.size]
                np.testing.assert_allclose(own, least, rtol=UNITS)
                assert (own <= least * (1 + ROUNDING)).all()


def test_the_bound_of_every_strategy_is_the_most_that_a_node_says(positive_problem: Maker) -> None:
    for seed in range(100):
        table = WeightedBounds(positive_problem(seed))
        found = table.bounds(1.0, 0.3, sweeps=1)
        nodes = [
            found.min_marginals[first:last].min() for first, last in itertools.pairwise(table.start)
        ]
        assert found.least == max(nodes)
        # A spanning tree is of all nodes, so they differ by what single nodes knew before alone.
        assert min(nodes) >= 0.9 * found.least


def test_what_hangs_is_all_of_a_tree_and_nothing_of_a_cycle() -> None:
    walk = pendant_edges(5, [0, 1, 1, 3], [1, 2, 3, 4])
    assert sorted(walk.edges.tolist()) == [0, 1, 2, 3]
    cycle = pendant_edges(4, [0, 1, 0, 2], [1, 2, 2, 3])
    assert cycle.edges.tolist() == [3]
    assert cycle.is_ahead.tolist() == [False]  # from node 3 to its source
    double = pendant_edges(2, [0, 0], [1, 1])
    assert double.edges.size == 0
    assert pendant_edges(1, [], []).edges.size == 0


def test_nodes_come_before_what_they_hang_on() -> None:
    random = np.random.default_rng(1)
    for count in (2, 3, 8, 20):
        target = np.arange(1, count)
        source = np.array([int(random.integers(0, node)) for node in target])
        walk = pendant_edges(count, source.tolist(), target.tolist())
        assert sorted(walk.edges.tolist()) == list(range(count - 1))
        gone: set[int] = set()
        for edge, is_ahead in zip(walk.edges, walk.is_ahead, strict=True):
            ends = int(source[edge]), int(target[edge])
            child, parent = ends if is_ahead else ends[::-1]
            assert child not in gone
            assert parent not in gone
            gone.add(child)


def test_the_tree_has_the_edges_with_most_left_of_every_component() -> None:
    source, target = np.array([0, 1, 0, 0, 3]), np.array([1, 2, 2, 1, 4])
    left = np.array([1.0, 5.0, 3.0, 4.0, 0.0])
    walk = spanning_tree(6, source, target, np.arange(5), left)
    assert sorted(walk.edges.tolist()) == [1, 3, 4]  # of two between 0 and 1 the one with more
    only = spanning_tree(6, source, target, np.array([0, 2]), left)
    assert sorted(only.edges.tolist()) == [0, 2]
    assert spanning_tree(6, source, target, np.array([], dtype=np.int64), left).edges.size == 0
