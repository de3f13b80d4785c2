"""Every solver against certificates: valid, priced by equation 3, never below the frontier."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest

from reproduction.baselines import flexflow, ft_elimination
from reproduction.baselines import solvers as reproduced
from reproduction.baselines.brute_force import brute_force
from reproduction.baselines.tofu import fully_split
from tensoropt.errors import OptionError
from tensoropt.parallel.configuration import divisible, output_slot
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search import frontier_tracking, solvers
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.limits import SearchLimits
from tensoropt.search.scalar.bucket_elimination import fastest
from tensoropt.search.solvers import REPRODUCED, solver

Of = Callable[[str, int], GraphProblem]

SCRIPTS = ("layers", "residual", "similarities")
SINGLE = ("data_parallel", "optcnn", "tofu", "tofu_recursive")
DEVICES = (1, 2, 4, 6)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("name", [*SINGLE, "mesh_tensorflow", "ft"])
def test_strategies_cost_what_is_said_and_none_beats_the_frontier(
    graph_problem_of: Of, name: str, devices: int, script: str
) -> None:
    problem = graph_problem_of(script, devices)
    found = solver(name)(problem).found
    for memory, time, strategy in found:
        assert problem.problem.cost(strategy.tolist()) == (memory, time)
        assert len(problem.configurations(strategy.tolist())) == len(problem.graph)
    assert found.exact
    assert frontier_tracking(problem.problem).dominates(found)
    assert name not in SINGLE or len(found) == 1


@pytest.mark.parametrize("seed", range(20))
def test_eliminations_alone_find_the_frontier(
    random_problem: Callable[[int], Problem], seed: int
) -> None:
    problem = random_problem(seed)
    found = ft_elimination.solve(problem)
    assert not found.exact or found.same_costs(frontier_tracking(problem))
    for memory, time, strategy in found:
        assert problem.cost(strategy.tolist()) == (memory, time)


def test_a_walk_is_no_slower_than_data_parallelism_and_splits_no_sum(graph_problem_of: Of) -> None:
    problem = graph_problem_of("residual", 4)
    allowed = flexflow.without_sums(problem)
    found = flexflow.solve(problem, proposals=2_000)
    ((memory, time, strategy),) = found
    assert problem.problem.cost(strategy.tolist()) == (memory, time)
    assert time <= solver("data_parallel")(problem).found.time[0]
    assert time >= least_time(problem.problem, allowed).time[0]
    assert all(state in own for state, own in zip(strategy, allowed, strict=True))


def test_enumeration_is_one_of_them(graph_problem_of: Of) -> None:
    problem = graph_problem_of("similarities", 2)
    assert solver("brute_force")(problem).found.same_costs(solver("ft")(problem).found)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("devices", DEVICES)
def test_data_parallel_splits_the_batch_and_no_variable(
    graph_problem_of: Of, devices: int, script: str
) -> None:
    problem = graph_problem_of(script, devices)
    found = solver("data_parallel")(problem).found
    axes = tuple(range(len(problem.mesh.axes)))
    for name, configuration in problem.configurations(found.strategies[0].tolist()).items():
        operator = problem.graph[name]
        if operator.is_variable or operator.gradient is not None or name.endswith("/read"):
            assert not any(configuration.splits)
        else:
            assert configuration.splits[0] == axes  # rows are the batch in all of them
            assert not any(configuration.splits[1:])


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("devices", DEVICES)
def test_optcnn_is_the_fastest_point(graph_problem_of: Of, devices: int, script: str) -> None:
    problem = graph_problem_of(script, devices)
    found = solver("optcnn")(problem).found
    assert found.time[0] == frontier_tracking(problem.problem).time[-1]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("devices", DEVICES)
def test_tofu_holds_no_tensor_twice(graph_problem_of: Of, devices: int, script: str) -> None:
    problem = graph_problem_of(script, devices)
    strategy = solver("tofu")(problem).found.strategies[0].tolist()
    for name, configuration in problem.configurations(strategy).items():
        if problem.graph[name].gradient is not None:
            continue
        layout = output_slot(problem.derivations[name], configuration, 0).forward
        shape = problem.graph[name].outputs[0].shape
        assert layout.local_elements(shape, problem.mesh) * problem.mesh.size == prod(shape)
        assert not layout.partial


def test_tofu_is_the_fastest_of_its_strategies(graph_problem_of: Of) -> None:
    problem = graph_problem_of("layers", 2)
    kept = [fully_split(problem, node) for node in range(len(problem.choices))]
    every = np.array(list(product(*kept)))
    _, time = problem.problem.costs(every)
    assert solver("tofu")(problem).found.time[0] == time.min()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("devices", DEVICES)
def test_tofu_s_recursion_computes_nothing_twice(
    graph_problem_of: Of, devices: int, script: str
) -> None:
    problem = graph_problem_of(script, devices)
    strategy = solver("tofu_recursive")(problem).found.strategies[0].tolist()
    for name, configuration in problem.configurations(strategy).items():
        derivation = problem.derivations[name]
        if prod(divisible(derivation)) > 1 and problem.graph[name].gradient is None:
            assert sum(map(len, configuration.splits)) == len(problem.mesh.axes)


def test_tofu_s_recursion_is_the_best_at_every_axis(graph_problem_of: Of) -> None:
    problem = graph_problem_of("layers", 4)
    chosen = solver("tofu_recursive")(problem).found.strategies[0].tolist()
    configurations = problem.configurations(chosen)
    first = {
        name: tuple(tuple(axis for axis in axes if axis == 0) for axes in configuration.splits)
        for name, configuration in configurations.items()
    }
    # Of all strategies that split everything along the first axis and nothing along the second.
    kept, halved = [], []
    for number, group in enumerate(problem.choices):
        if problem.graph[group.leader].is_placeholder:
            kept.append([0])
            halved.append(0)
            continue
        splits = [option[group.leader].splits for option in group.options]
        flat = [[axis for axes in each for axis in axes] for each in splits]
        kept.append([n for n, axes in enumerate(flat) if axes == [0]])
        halved.append(splits.index(first[group.leader]))
        assert number == len(kept) - 1
    _, times = problem.problem.costs(np.array(list(product(*kept))))
    assert problem.problem.cost(halved)[1] == times.min()


def test_an_unknown_algorithm_is_refused_with_the_names() -> None:
    with pytest.raises(OptionError, match=r"ft, data_parallel, .*Got 'toffu'.*mean 'tofu'"):
        solver("toffu")


def test_without_the_repository_its_algorithms_are_refused_and_where_they_are_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(REPRODUCED) == set(reproduced.SOLVERS)
    monkeypatch.setattr(solvers, "_REPRODUCTION", "nowhere.baselines.solvers")
    for name in REPRODUCED:
        with pytest.raises(OptionError, match=rf"ft, data_parallel\. Got '{name}', .*clone"):
            solver(name)
    with pytest.raises(OptionError, match=r"ft, data_parallel, .*Got 'toffu'.*mean 'tofu'"):
        solver("toffu")
    assert solver("data_parallel") is solvers.SOLVERS["data_parallel"]


def test_what_the_repository_itself_lacks_is_no_missing_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "half_a_repository.py").write_text("import a_module_that_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(solvers, "_REPRODUCTION", "half_a_repository")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_nowhere"):
        solver("tofu")


def test_the_fastest_strategy_is_that_of_enumeration(
    positive_problem: Callable[[int], Problem],
) -> None:
    """Tables may have any size; if they are too small, the frontier has the stated gap."""
    gave_up, not_exact = 0, 0
    limits = SearchLimits(bucket_cells=1)
    for seed in range(30):
        problem = positive_problem(seed)
        whole = [np.arange(node.configurations) for node in problem.nodes]
        kept = [own[:2] if seed % 3 else own for own in whole]
        strategies = np.array(list(product(*kept)))
        _, times = problem.costs(strategies)
        best = int(times.min())
        found = least_time(problem, kept)
        assert found.exact
        assert int(found.time[0]) == best
        small = least_time(problem, kept, limits)
        assert small.within is not None
        assert best <= int(small.time[0]) <= best * (1 + small.within)
        assert all(number in own for number, own in zip(small.strategies[0], kept, strict=True))
        not_exact += not small.exact
        gave_up += fastest(restrict(problem, kept), 6, 6) is None
    assert 5 < gave_up < 25
    assert 0 < not_exact < gave_up


def test_bucket_elimination_finds_the_least_time(random_problem: Callable[[int], Problem]) -> None:
    for seed in range(60):
        problem = random_problem(seed)
        strategy = fastest(problem, 1 << 20, 1 << 20)
        assert strategy is not None
        assert problem.cost(strategy.tolist())[1] == brute_force(problem).time[-1]
