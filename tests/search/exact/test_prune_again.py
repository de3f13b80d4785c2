"""Pruning anew between eliminations: nothing of the search region is lost, and less is merged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.problem.model import Problem
from tensoropt.search.exact import search_graph
from tensoropt.search.exact.ft_ldp import eliminate_all
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.pareto.region import SearchRegion

Maker = Callable[[int], Problem]


def _left(problem: Problem, region: SearchRegion, worth: float) -> SearchGraph:
    """Eliminate all nodes of a problem, for the points in a region."""
    graph = SearchGraph(problem)
    graph.prune([(1.0, worth / 3), (1.0, worth), (1.0, 3 * worth)], region, 8)
    if not graph.is_pruned_out:
        eliminate_all(graph, 100_000)
    return graph


def test_what_is_in_the_region_is_found(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prune after every elimination, even after quick ones."""
    monkeypatch.setattr(search_graph, "PRUNED_AGAIN", 0.0)
    rng = np.random.default_rng(5)
    inside = 0
    for seed in range(40):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        memory = np.quantile(truth.memory, rng.uniform(0.2, 0.9))
        time = np.quantile(truth.time, rng.uniform(0.2, 0.9))
        region = SearchRegion(np.array([memory]), np.array([time]))
        wanted = {(one, other) for one, other, _ in truth if one < memory and other < time}
        graph = _left(problem, region, problem.byte_worth)
        found: set[tuple[int, int]] = set()
        if not graph.is_pruned_out:
            points = graph.constant
            found = set(zip(points.memory.tolist(), points.time.tolist(), strict=True))
        assert wanted <= found
        inside += len(wanted)
    assert inside > 20


def test_it_is_paid_for(positive_problem: Maker) -> None:
    graph = SearchGraph(positive_problem(1))
    assert not graph.prune_again()  # it was never pruned
    region = SearchRegion(np.array([np.inf]), np.array([np.inf]))
    graph.prune([(1.0, 1.0)], region, 8)
    assert not graph.prune_again()  # nothing was eliminated since
    graph.pointers.spend(1e9)
    left = graph.pointers.additions
    assert graph.prune_again()
    assert graph.pointers.additions < left
    assert not graph.prune_again()
