"""Mesh-TensorFlow's programs against all of them, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from reproduction.baselines.like_layers import one_name_for_like_layers
from reproduction.baselines.mesh_tensorflow import meshes, solve
from tensoropt.parallel.configuration import Configuration
from tensoropt.problem.edges.tensor_reuse import WHOLE_OPERANDS
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.named_dimensions import named_dimensions

Of = Callable[..., GraphProblem]


def test_an_index_names_the_dimensions_that_it_runs_along(graph_problem_of: Of) -> None:
    names = named_dimensions(graph_problem_of("layers", 2)).of_operator
    batch, features = names["x"]
    _, hidden = names["relu"]
    classes = names["two"][1]
    assert len({batch, features, hidden, classes}) == 4
    assert names["one"] == (batch, hidden, features)
    assert names["relu"] == (batch, hidden)
    assert names["two"] == (batch, classes, hidden)
    assert names["w1"] == names["w1/read"] == names["w1/gradient"] == (features, hidden)
    assert names["w2/gradient"] == (hidden, classes)


def test_what_skips_a_layer_ties_its_widths(graph_problem_of: Of) -> None:
    names = named_dimensions(graph_problem_of("residual", 2)).of_operator
    assert names["one"][2] == names["two"][1] == names["sum"][1] == names["w0"][1]
    # The weights of one layer have its two widths: those cannot have one name.
    assert names["w0"][0] != names["w0"][1]


def test_no_tensor_has_two_dimensions_of_one_name(graph_problem_of: Of) -> None:
    names = named_dimensions(graph_problem_of("similarities", 2)).of_operator
    batch = names["x"][0]
    assert names["alike"][0] == names["rows"][0] == batch
    assert names["alike"][1] != batch


def test_like_layers_share_names(graph_problem_of: Of) -> None:
    problem = graph_problem_of("alike", 2, WHOLE_OPERANDS)
    free = named_dimensions(problem)
    one = one_name_for_like_layers(problem, free).of_operator
    assert free.of_operator["layer0/in/MatMul"][1] != free.of_operator["layer1/in/MatMul"][1]
    assert one["layer0/in/MatMul"] == one["layer1/in/MatMul"]
    assert one["layer0/out/MatMul"] == one["layer1/out/MatMul"]
    assert len(set(one["layer0/in/MatMul"])) == 3
    layers, free_layers = solve(problem), solve(problem, free=True)
    assert free_layers.dominates(layers)


def test_meshes_are_the_partitions_of_the_axes() -> None:
    assert [len(list(meshes(axes))) for axes in range(6)] == [1, 1, 2, 5, 15, 52]
    for mesh in meshes(3):
        assert sorted(axis for group in mesh for axis in group) == [0, 1, 2]


def by_hand(problem: GraphProblem) -> Iterator[list[int]]:
    """The strategy of every mesh and layout that are allowed."""
    names = named_dimensions(problem)
    for mesh in meshes(len(problem.mesh.axes)):
        for layout in product([(), *mesh], repeat=names.count):
            strategy = []
            for group in problem.choices:
                if problem.graph[group.leader].is_placeholder:
                    strategy.append(0)
                    continue
                splits = tuple(layout[name] for name in names.of_operator[group.leader])
                used = [axis for axes in splits for axis in axes]
                options = [option[group.leader] for option in group.options]
                if len(used) > len(set(used)):
                    break
                strategy.append(options.index(Configuration(splits)))
            else:
                yield strategy


@pytest.mark.parametrize("devices", [1, 2, 4, 6])
@pytest.mark.parametrize("script", ["layers", "residual", "similarities"])
def test_the_frontier_is_that_of_all_programs(
    graph_problem_of: Of, devices: int, script: str
) -> None:
    problem = graph_problem_of(script, devices, WHOLE_OPERANDS)
    costs = {problem.problem.cost(strategy) for strategy in by_hand(problem)}
    best = sorted(
        (memory, time)
        for memory, time in costs
        if not any((m <= memory and t <= time) and (m, t) != (memory, time) for m, t in costs)
    )
    found = solve(problem)
    assert list(zip(found.memory.tolist(), found.time.tolist(), strict=True)) == best
    assert found.exact


def test_data_parallelism_is_such_a_program(graph_problem_of: Of) -> None:
    problem = graph_problem_of("layers", 4)
    assert solve(problem).dominates(data_parallel.solve(problem))


def test_too_many_layouts_are_thinned_out_and_it_is_said(graph_problem_of: Of) -> None:
    problem = graph_problem_of("residual", 6)
    whole, few = solve(problem), solve(problem, 2)
    assert not few.exact
    assert whole.dominates(few)
    memory, time = problem.problem.costs(few.strategies)
    assert np.array_equal(memory, few.memory)
    assert np.array_equal(time, few.time)
