"""The problem without nodes that have one configuration costs what it did."""

from __future__ import annotations

import numpy as np

from tensoropt.problem.condense import condense
from tensoropt.search import Edge, Node, Problem


def test_strategies_cost_the_same() -> None:
    random = np.random.default_rng(5)
    for _ in range(30):
        counts = random.integers(1, 4, 6)
        nodes = [
            Node(str(number), random.integers(0, 99, count), random.integers(0, 99, count))
            for number, count in enumerate(counts)
        ]
        edges = []
        for source, target in [(0, 1), (0, 3), (1, 2), (1, 5), (2, 3), (3, 4), (3, 4), (4, 5)]:
            size = counts[source], counts[target]
            memory, time = random.integers(0, 9, size), random.integers(0, 9, size)
            slots = [random.permutation(count) for count in size]
            edges.append(Edge.of(source, target, *slots, memory, time))
        problem = Problem(tuple(nodes), tuple(edges))
        smaller, left = condense(problem)
        assert len(smaller.nodes) == max(1, int((counts > 1).sum()))
        strategies = random.integers(0, counts, (20, 6))
        for own, whole in zip(
            smaller.costs(strategies[:, left]), problem.costs(strategies), strict=True
        ):
            assert np.array_equal(own, whole)
