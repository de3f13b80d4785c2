"""FT against enumeration: the same frontier, with strategies that cost what it claims."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import OptionError
from tensoropt.search import Edge, Frontier, Node, Problem, frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import ELIMINATIONS

Maker = Callable[[int], Problem]

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(120)
# Exact throughout; then with no state to spare, so that only heuristics help.
SETTINGS = (DEFAULT_LIMITS, SearchLimits(branch_states=1))


def check(problem: Problem, found: Frontier, truth: Frontier) -> None:
    """Every certificate that a frontier of ``problem`` must pass."""
    memory, time = problem.costs(found.strategies)
    assert np.array_equal(memory, found.memory)
    assert np.array_equal(time, found.time)
    assert found.exact == (found.eliminations["heuristic"] == 0)
    if found.exact:
        assert found.same_costs(truth)
    else:
        assert truth.dominates(found)


def test_it_is_the_frontier_of_every_strategy(random_problem: Maker) -> None:
    graphs: Counter[str] = Counter()
    concatenated = inexact = 0
    for seed in SEEDS:
        problem = random_problem(seed)
        truth = brute_force(problem)
        kinds = set()
        for settings in SETTINGS:
            is_small = settings.branch_states == 1
            found = frontier_tracking(problem, limits=settings, bounds=not is_small)
            check(problem, found, truth)
            assert found.exact or is_small, f"seed {seed} needed a heuristic without a small limit"
            kinds |= {kind for kind in ELIMINATIONS if found.eliminations[kind]}
            inexact += not found.same_costs(truth)
        # Where a heuristic is needed as soon as nodes may not be concatenated, they were.
        concatenated += "heuristic" in kinds
        graphs.update(kinds)
    print("graphs that an elimination was applied to:", dict(graphs))
    print("with states concatenated:", concatenated, "frontiers that a heuristic lost:", inexact)
    assert min(graphs[kind] for kind in ELIMINATIONS) >= 12
    assert concatenated >= 12
    assert inexact >= 6


def path(*counts: int) -> Problem:
    """A chain of nodes with distinct powers as costs, so that every sum tells its terms."""
    nodes = [
        Node(f"n{i}", 10**i * np.arange(count), 10**i * np.arange(count)[::-1].copy())
        for i, count in enumerate(counts)
    ]
    edges = [
        Edge.of(i, i + 1, *(np.zeros(k, np.int64) for k in (a, b)), *np.zeros((2, 1, 1), np.int64))
        for i, (a, b) in enumerate(pairwise(counts))
    ]
    return Problem(tuple(nodes), tuple(edges))


def test_a_chain_is_left_to_the_dynamic_program() -> None:
    found = frontier_tracking(path(3, 3, 3, 3, 3))
    assert set(found.eliminations.values()) == {0}
    # Memory and time of any strategy sum to the same: all 3**5 are on the frontier.
    assert len(found) == 3**5
    digits = found.memory[:, None] // 10 ** np.arange(5) % 10
    assert np.array_equal(found.strategies, digits)


def test_nodes_without_a_choice_are_folded() -> None:
    found = frontier_tracking(path(1, 3, 1, 2))
    assert found.eliminations["fold"] == 2
    assert found.exact
    assert len(found) == 6
    alone = frontier_tracking(path(1, 1))
    assert alone.strategies.tolist() == [[0, 0]]


def shared_inputs(masks: int, layers: int, configurations: int) -> Problem:
    """A chain of layers that all read the same masks."""
    rng = np.random.default_rng(3)
    size, slots = masks + layers, np.arange(configurations)
    nodes = tuple(Node(f"n{i}", *rng.integers(0, 50, (2, configurations))) for i in range(size))
    pairs = [(i, i + 1) for i in range(masks, size - 1)]
    pairs += [(mask, layer) for mask in range(masks) for layer in range(masks, size)]
    costs = rng.integers(0, 50, (len(pairs), configurations, configurations))
    edges = (
        Edge.of(*pair, slots, slots, np.zeros_like(cost), cost)
        for pair, cost in zip(pairs, costs, strict=True)
    )
    return Problem(nodes, tuple(edges))


def test_one_shared_input_needs_no_heuristic() -> None:
    """Layers at the far end have two neighbours, the mask among them, one after the other."""
    problem = shared_inputs(1, 6, 3)
    found = frontier_tracking(problem, limits=SearchLimits(branch_states=1))
    check(problem, found, brute_force(problem))
    assert found.exact
    assert found.eliminations["branch"] == 0


def test_two_shared_inputs_are_concatenated_or_one_is_decided() -> None:
    problem = shared_inputs(2, 5, 3)
    truth = brute_force(problem)
    assert frontier_tracking(problem).same_costs(truth)
    few = SearchLimits(branch_states=2)
    decided = frontier_tracking(problem, limits=few, bounds=False)
    check(problem, decided, truth)
    assert decided.eliminations["heuristic"] == 1
    # One of the masks it was, for they have the most neighbours.
    same = (decided.strategies == decided.strategies[0]).all(axis=0)
    assert same[:2].any()
    # What a heuristic has lost is found with bounds, however few cells there are.
    assert frontier_tracking(problem, limits=few).same_costs(truth)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        SearchLimits(branch_states=0)
    with pytest.raises(OptionError, match="at least 0"):
        frontier_tracking(path(2, 2), epsilon=-0.1)


def test_brute_force_refuses_what_it_cannot_enumerate() -> None:
    with pytest.raises(OptionError, match="frontier tracking"):
        brute_force(path(*[4] * 12))


_DIGEST = """
import hashlib, runpy, sys
from tensoropt.search import frontier_tracking
from tensoropt.search.limits import SearchLimits
make = runpy.run_path(sys.argv[1])["make_problem"]
digest = hashlib.sha256()
for seed in range(20):
    found = frontier_tracking(make(seed), limits=SearchLimits(branch_states=6))
    for array in (found.memory, found.time, found.strategies):
        digest.update(array.tobytes())
print(digest.hexdigest())
"""


def test_the_same_input_gives_the_same_strategies_everywhere(random_problem: Maker) -> None:
    here = hashlib.sha256()
    for seed in range(20):
        found = frontier_tracking(random_problem(seed), limits=SearchLimits(branch_states=6))
        for array in (found.memory, found.time, found.strategies):
            here.update(array.tobytes())
    conftest = str(Path(__file__).with_name("conftest.py"))
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", _DIGEST, conftest],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        assert there.stdout.strip() == here.hexdigest()


def test_the_two_forms_of_cost_agree(random_problem: Callable[[int], Problem]) -> None:
    for seed in range(40):
        problem = random_problem(seed)
        rng = np.random.default_rng(seed)
        limits = [n.configurations for n in problem.nodes]
        strategies = rng.integers(0, limits, (5, len(limits)))
        claimed = list(zip(*(c.tolist() for c in problem.costs(strategies)), strict=True))
        assert claimed == [problem.cost(row.tolist()) for row in strategies]


def test_an_exact_search_goes_on_where_a_short_branch_and_bound_is_not_near(
    positive_problem: Maker,
) -> None:
    """If one search may take few points, the next may take as many as its additions make."""
    longer = SearchLimits(
        bounded_cells=0,
        plain_states=0,
        exact_points=120,
        exact_additions=1e6,
        exact_states=0,
        short_additions=0,
        branching_additions=0,
    )
    short = replace(longer, exact_additions=300)
    went_on = 0
    for seed in range(12):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        found = frontier_tracking(problem, limits=longer)
        assert found.is_within(DEFAULT_LIMITS.closing_gap)
        assert not found.exact or found.same_costs(truth)
        ended = frontier_tracking(problem, limits=short)
        assert truth.dominates(ended)
        went_on += found.exact and not ended.is_within(DEFAULT_LIMITS.closing_gap)
    assert went_on > 3


@pytest.mark.parametrize(("additions", "searches"), [(0.0, 2), (1e9, 1)])
def test_a_longer_exact_search_follows_if_the_first_one_took_few_additions(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch, additions: float, searches: int
) -> None:
    begun: list[SearchLimits] = []

    def too_large(_: Problem, epsilon: float, limits: SearchLimits, *graph: object) -> Outcome:
        begun.append(limits)
        return Outcome(None, is_too_large=True, additions=additions)

    monkeypatch.setattr("tensoropt.search.find.simplify_first", too_large)
    limits = SearchLimits(bounded_cells=0, exact_states=0, short_additions=0, branching_additions=0)
    found = frontier_tracking(positive_problem(5), limits=limits)
    assert not found.is_within(DEFAULT_LIMITS.closing_gap)
    assert begun == [limits.exact, limits.longer_exact][:searches]
