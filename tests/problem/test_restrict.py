"""Restricted problems cost what the whole does, and share what edges that are alike share."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap
from tensoropt.problem.restrict import restrict


def drawn(seed: int, takes_memory: bool) -> Problem:
    """Four nodes with edges of two kinds that have a slot map in common."""
    random = np.random.default_rng(seed)
    nodes = tuple(
        Node(str(n), random.integers(0, 9, 5), random.integers(0, 9, 5)) for n in range(4)
    )
    one, other = (SlotMap(random.integers(0, 4, 5)) for _ in range(2))
    memory, time = random.integers(0, 9, (2, 4, 4)) * np.array([takes_memory, 1])[:, None, None]
    costs = CostTable(memory, time)
    kinds = EdgeKind(one, other, costs), EdgeKind(one, one, costs)
    ends = itertools.combinations(range(4), 2)
    return Problem(nodes, tuple(Edge(*pair, kinds[n % 2]) for n, pair in enumerate(ends)))


@pytest.mark.parametrize("takes_memory", [False, True])
def test_a_restricted_problem_has_the_costs_of_the_whole(takes_memory: bool) -> None:
    for seed in range(20):
        problem = drawn(seed, takes_memory)
        random = np.random.default_rng(seed)
        kept = [np.flatnonzero(random.integers(0, 2, 5) | [1, 0, 0, 0, 0]) for _ in range(4)]
        part = restrict(problem, kept)
        strategies = np.array(list(itertools.product(*(range(own.size) for own in kept))))
        whole = np.stack([own[strategies[:, n]] for n, own in enumerate(kept)], axis=1)
        for one, other in zip(part.costs(strategies), problem.costs(whole), strict=True):
            np.testing.assert_array_equal(one, other)


def test_edges_alike_stay_alike() -> None:
    problem = drawn(0, takes_memory=True)
    part = restrict(problem, [np.array([0, 2, 3])] * 4)
    assert len({edge.kind for edge in part.edges}) == 2
    assert len({edge.kind.source_map for edge in part.edges}) == 1


def test_edges_that_differ_in_their_far_slots_alone_stay_apart() -> None:
    table = np.array([[5, 1], [2, 7]], np.int64)
    nodes = tuple(Node(str(n), np.zeros(2, np.int64), np.zeros(2, np.int64)) for n in range(3))
    first = Edge.of(0, 1, np.array([0, 1]), np.array([0, 1]), table, table)
    # The same table and the same source slots, but the target slots are exchanged.
    other = Edge(0, 2, replace(first.kind, target_map=SlotMap(np.array([1, 0]))))
    problem = Problem(nodes, (first, other))
    part = restrict(problem, [np.array([0, 1])] * 3)
    for strategy in itertools.product(range(2), repeat=3):
        assert part.cost(strategy) == problem.cost(strategy)
