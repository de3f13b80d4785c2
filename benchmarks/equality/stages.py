"""Random pipelines of stages against plain TensorFlow on one device, all ranks in this process."""

from __future__ import annotations

import numpy as np

from benchmarks.equality.engine import (
    Script,
    Trained,
    choices_of,
    draw,
    planned_of,
    planner,
    random_prices,
)
from tensoropt.execution.agreement import Agreement
from tensoropt.execution.stage_ranks import Pipeline, StageRanks
from tensoropt.execution.staged_executor import StagedExecutor
from tensoropt.execution.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.microbatches.cut import cut_along_batch
from tensoropt.pipeline.staged.assignment import assign
from tensoropt.pipeline.stages.schedule import SCHEDULES

__all__ = ["draw_pipeline", "staged_executor", "train_pipeline"]


def draw_pipeline(script: Script, random: np.random.Generator) -> Pipeline:
    """Two to four stages of one or two devices, each with a random strategy, anywhere cut."""
    count, batch, first = int(random.integers(2, 5)), batch_of(script), 0
    stages = []
    for _ in range(count):
        mesh = Mesh.of(int(random.integers(1, 3)))
        numbers = draw(script.imported(), choices_of(script, mesh, batch), mesh, random).numbers
        planned = planned_of(script, mesh, numbers, batch)
        price = random_prices(int(random.integers(100)))
        stages.append(StageRanks(SingleProcessWorld(mesh, first), planned, planner(mesh, price)))
        first += mesh.size
    microbatches = int(random.choice([2, 4, 8]))
    loss = TensorName.parse(script.loss).operator
    graph = import_graph(script.graph, [script.train, loss], script.shapes)
    cut = cut_along_batch(graph, batch, microbatches)
    names = [name for name in cut.indices if not graph[name].is_placeholder]
    cuts = np.sort(random.random(count - 1))
    places = np.searchsorted(cuts, np.linspace(0, 1, len(names)), side="right")
    stages_of_passes = dict(zip(names, map(int, places), strict=True))
    stage_of = {**assign(cut, stages_of_passes), **stages_of_passes}
    schedule = SCHEDULES[int(random.integers(len(SCHEDULES)))]
    return Pipeline(tuple(stages), stage_of, microbatches, schedule)


def batch_of(script: Script) -> frozenset[str]:
    """The placeholders whose first dimension is the batch."""
    return frozenset(name for name, value in script.feeds[0].items() if value.ndim)


def staged_executor(script: Script, pipeline: Pipeline) -> StagedExecutor:
    """What runs a script's graph on a pipeline."""
    return StagedExecutor(script.graph, pipeline, batch_of(script), Agreement(None), 1)


def train_pipeline(script: Script, pipeline: Pipeline) -> Trained:
    """Train with a pipeline, from the script's initial values."""
    executor = staged_executor(script, pipeline)
    losses = [
        executor.run([script.loss], [script.train], values)[script.loss] for values in script.feeds
    ]
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables)
