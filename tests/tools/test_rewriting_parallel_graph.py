"""Strategies as parallel computation graphs, and back."""

from __future__ import annotations

import numpy as np
import pytest

from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality.rewrite_scripts import experts
from tools.rewriting.parallel_graph import Move, ParallelGraph, Stage

MESHES = [Mesh(()), Mesh((2,)), Mesh((2, 2)), Mesh((3, 2)), Mesh((2, 2, 2))]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_random_strategies_come_back(mesh: Mesh, seed: int) -> None:
    script, random = experts(), np.random.default_rng(seed)
    graph = script.imported()
    choices = strategy_choices(graph, mesh, frozenset({"given"}))
    drawn = [int(random.integers(len(group.options))) for group in choices]
    configurations = dict(configurations_of(choices, drawn))
    batch = frozenset({"given"})
    found = ParallelGraph.of(graph, [Stage.of(mesh)], configurations, batch_placeholders=batch)
    assert found.configurations() == configurations
    assert set(found.stage_of().values()) == {0}


@pytest.mark.parametrize("seed", range(5))
def test_random_pipelines_come_back(seed: int) -> None:
    script, random = experts(), np.random.default_rng(seed)
    graph = script.imported()
    stages = [Stage.of(Mesh((2,))), Stage(Mesh((2, 2)), (3, 5, 2, 6)), Stage(Mesh(()), (4,))]
    stage_of = {operator.name: int(random.integers(len(stages))) for operator in graph}
    configurations = {}
    for number, stage in enumerate(stages):
        choices = strategy_choices(graph, stage.mesh)
        drawn = [int(random.integers(len(group.options))) for group in choices]
        own = configurations_of(choices, drawn)
        configurations |= {name: own[name] for name in own if stage_of[name] == number}
    batch = frozenset({"given"})
    found = ParallelGraph.of(graph, stages, configurations, stage_of, batch, 4)
    assert found.configurations() == configurations
    assert found.stage_of() == {name: stage_of[name] for name in configurations}
    split = {move for edge in found.edges if edge.tensor == "given:0" for move in edge.moves}
    assert Move("pipeline", 4, 0) in split


def test_a_graph_prints_and_draws() -> None:
    script = experts()
    graph, mesh = script.imported(), Mesh((2,))
    choices = strategy_choices(graph, mesh, frozenset({"given"}))
    first = {group.leader: number for number, group in enumerate(choices)}
    drawn = [0] * len(choices)
    product = next(op for op in graph if op.type == "MatMul" and op.inputs[0].operator == "given")
    options = choices[first[product.name]].options
    drawn[first[product.name]] = next(
        n for n in range(len(options)) if options[n][product.name].splits == ((), (), (0,))
    )
    batch = frozenset({"given"})
    chosen = configurations_of(choices, drawn)
    found = ParallelGraph.of(graph, [Stage.of(mesh)], chosen, batch_placeholders=batch)
    line = next(line for line in str(found).splitlines() if line.startswith(f"{product.name} ="))
    assert "MatMul[1x1x2](partition[1](2)(combine[0](2)(given:0))" in line
    readers = [edge for edge in found.edges if edge.tensor == f"{product.name}:0"]
    assert any(Move("reduce", 2) in edge.moves for edge in readers)
    assert '"given:0 to ' in found.to_dot()
