"""Gaps at corners: what the nodes of a problem allow, one after the other."""

from __future__ import annotations

import numpy as np

from tensoropt.search.bounds.corner_gaps import by_nodes


def test_gaps_by_nodes_are_those_of_every_configuration() -> None:
    """Of each node the configuration that comes nearest to the corner by all lines, of all nodes
    the one whose is farthest."""
    random = np.random.default_rng(5)
    start = np.array([0, 4, 5, 12, 20])
    min_marginals = random.uniform(0.9, 1.1, (20, 6))
    limits = random.uniform(0.95, 1.2, (50, 6))
    limits[3, 2], limits[4] = np.inf, np.inf
    first = np.full(50, 0.5)
    share = by_nodes(limits, min_marginals, start, first)
    near = (min_marginals[None] / limits[:, None]).max(axis=2)  # corners, configurations
    of_nodes = np.minimum.reduceat(near, start[:-1], axis=1)
    best = np.maximum(of_nodes.max(axis=1), 1 / 1.5)
    assert np.allclose(share, 1 / best - 1)
    says = of_nodes.max(axis=1) > 1 / 1.5
    assert 0 < says.sum() < says.size
