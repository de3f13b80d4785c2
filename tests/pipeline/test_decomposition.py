"""A graph as operators in sequence and branches in parallel."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tensoropt.pipeline.branches.decomposition import (
    Parallel,
    Series,
    Tree,
    Whole,
    decomposed,
    places_of,
)


def check(tree: Tree, edges: list[tuple[int, int]]) -> None:
    """Parts of a series need earlier ones alone, branches nothing of each other."""
    if isinstance(tree, Whole):
        return
    parts = tree.parts if isinstance(tree, Series) else tree.branches
    assert len(parts) > 1
    sets = [set(places_of(part)) for part in parts]
    assert sum(map(len, sets)) == len(set().union(*sets))
    for first, second in combinations(sets, 2):
        assert not any(b in first and a in second for a, b in edges)
        if isinstance(tree, Parallel):
            assert not any(a in first and b in second for a, b in edges)
    for part in parts:
        assert type(part) is not type(tree)
        check(part, edges)


def test_random_graphs_are_split_as_their_edges_allow() -> None:
    random = np.random.default_rng(3)
    parallel = 0
    for _ in range(200):
        count = int(random.integers(1, 12))
        edges = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.25]
        tree = decomposed(range(count), edges)
        assert places_of(tree) == list(range(count))
        check(tree, edges)
        parallel += "Parallel" in repr(tree)
    assert parallel > 100


def test_branches_within_branches_and_knots() -> None:
    # 0 is read by a branch 1, 2 with 3 beside 2 within it, and by 5; 4 joins the former, 6 all.
    edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (0, 5), (4, 6), (5, 6)]
    inner = Parallel((Whole((2,)), Whole((3,))))
    branch = Series((Whole((1,)), inner, Whole((4,))))
    whole = Series((Whole((0,)), Parallel((branch, Whole((5,)))), Whole((6,))))
    assert decomposed(range(7), edges) == whole
    # 2 reads 0, 3 reads both sources: nothing is passed by all, and 3 joins 1 and the others.
    knot = Series((Parallel((Whole((0, 2)), Whole((1,)))), Whole((3,))))
    assert decomposed(range(4), [(0, 2), (0, 3), (1, 3)]) == knot
