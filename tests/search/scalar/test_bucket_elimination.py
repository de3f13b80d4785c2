"""The exact least time: equal steps of like blocks are done once, and the least time stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Edge, Node, Problem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.limits import SearchLimits
from tensoropt.search.scalar.bucket_elimination import Elimination, fastest

_MOST = 1 << 20


def blocks(count: int, choices: int, seed: int) -> Problem:
    """Equal residual blocks, one after the other; inner nodes have a choice less than others."""
    random = np.random.default_rng(seed)
    sizes = [choices, choices - 1, choices - 1, choices]
    times = [random.integers(0, 1000, size) for size in sizes[:3]]
    nodes = [
        Node(f"n{number}", np.zeros_like(times[number % 3]), times[number % 3])
        for number in range(3 * count + 1)
    ]
    first = []
    for source, target in ((0, 1), (1, 2), (2, 3), (0, 3)):
        table = random.integers(0, 1000, (sizes[source], sizes[target]))
        slots = np.arange(sizes[source]), np.arange(sizes[target])
        first.append(Edge.of(source, target, *slots, np.zeros_like(table), table))
    edges = [
        replace(edge, source=edge.source + 3 * block, target=edge.target + 3 * block)
        for block in range(count)
        for edge in first
    ]
    return Problem(tuple(nodes), tuple(edges))


def test_like_blocks_are_eliminated_once() -> None:
    """Equal edges make equal steps; the least time is that of enumeration."""
    problem = blocks(3, 3, seed=0)
    strategy = fastest(problem, _MOST, _MOST)
    assert strategy is not None
    assert problem.cost(strategy.tolist())[1] == brute_force(problem).time[-1]
    counts = [len(node.time) for node in problem.nodes]
    scopes = [(edge.source, edge.target) for edge in problem.edges]
    kinds = [edge.kind for edge in problem.edges]
    order = Elimination.of(counts, scopes, [True] * len(counts), kinds)
    steps = order.like[order.given :]
    assert np.unique(steps).size < steps.size
    order = Elimination.of(counts, scopes, [True] * len(counts))
    assert np.array_equal(order.like, np.arange(order.like.size))


def test_a_last_elimination_may_take_more_additions() -> None:
    """Where the first one is too large, and bounds leave a gap, the last one proves the least."""
    few = SearchLimits(bucket_cells=60, bucket_additions=1)
    many = replace(few, bucket_additions=_MOST)
    proven = 0
    for seed in range(8):
        problem = blocks(8, 7, seed)
        every = [np.arange(node.configurations) for node in problem.nodes]
        early, late = least_time(problem, every, few), least_time(problem, every, many)
        least = fastest(problem, _MOST, _MOST)
        assert least is not None
        assert late.exact
        assert late.time[0] == problem.cost(least.tolist())[1]
        proven += not early.exact
    assert proven > 0
