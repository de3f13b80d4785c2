"""Random pipelines of stages against plain TensorFlow on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import (
    Pipeline,
    StageRanks,
    StageWorlds,
    stages_in_one_process,
)
from tensoropt.graph.batch_norm import BatchNorm, with_batch_norm
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule
from tests.oracles.equality.engine import (
    Script,
    Trained,
    choices_of,
    draw,
    planned_of,
    planner,
    random_prices,
)

__all__ = ["batch_of", "draw_pipeline", "staged_executor", "train_pipeline"]


def draw_pipeline(
    script: Script,
    random: np.random.Generator,
    sizes: Sequence[int] = (),
    worlds_of: Callable[[Sequence[Mesh]], StageWorlds] = stages_in_one_process,
    microbatches: int = 0,
    batch_norm: BatchNorm = "global",
    schedule: Schedule | None = None,
) -> Pipeline:
    """Draw a pipeline: its cuts, its schedule, and for each stage a strategy and whether it
    recomputes.

    Args:
        script: the script that is trained.
        random: the source of all draws.
        sizes: the devices of each stage; by default two to four stages of one or two devices.
        worlds_of: makes the ranks of the stages; by default all in this process.
        microbatches: number of microbatches; by default 2, 4 or 8.
        batch_norm: the statistics that batch normalisation takes.
        schedule: the schedule; by default any that suits the number of microbatches.
    """
    batch = batch_of(script)
    sizes = sizes or [int(random.integers(1, 3)) for _ in range(int(random.integers(2, 5)))]
    worlds = worlds_of([Mesh.of(size) for size in sizes])
    stages: list[StageRanks] = []
    for world in worlds.stages:
        mesh = world.mesh
        numbers = draw(script.imported(), choices_of(script, mesh, batch), mesh, random).numbers
        planned = planned_of(script, mesh, numbers, batch)
        recomputes = bool(random.integers(2))
        stages.append(
            StageRanks(world, planned, planner(mesh, random_prices(len(stages))), recomputes)
        )
    microbatches = microbatches or int(random.choice([2, 4, 8]))
    loss = TensorName.parse(script.loss).operator
    graph = import_graph(script.graph, [script.train, loss], script.shapes)
    cut = cut_along_batch(with_batch_norm(graph, batch_norm), batch, microbatches)
    names = [name for name in cut.indices if not graph[name].is_placeholder]
    cuts = np.sort(random.random(len(sizes) - 1))
    places = np.searchsorted(cuts, np.linspace(0, 1, len(names)), side="right")
    stages_of_passes = dict(zip(names, map(int, places), strict=True))
    stage_of = {**assign(cut, stages_of_passes), **stages_of_passes}
    schedules: Sequence[Schedule] = SCHEDULES
    if microbatches == 1:
        schedules = (*SCHEDULES, "side_by_side")
    schedule = schedule or schedules[int(random.integers(len(schedules)))]
    return Pipeline(tuple(stages), stage_of, microbatches, schedule, worlds.everyone)


def batch_of(script: Script) -> frozenset[str]:
    """The placeholders whose first dimension is the batch."""
    return frozenset(name for name, value in script.feeds[0].items() if value.ndim)


def staged_executor(
    script: Script,
    pipeline: Pipeline,
    agreement: Agreement | None = None,
    batch_norm: BatchNorm = "global",
) -> Executor:
    """An executor of a script's graph on a pipeline."""
    options = StepOptions(batch_of(script), 1, batch_norm=batch_norm)
    return Executor(script.graph, pipeline, options, agreement or Agreement(None))


def train_pipeline(
    script: Script,
    pipeline: Pipeline,
    agreement: Agreement | None = None,
    batch_norm: BatchNorm = "global",
) -> Trained:
    """Train with a pipeline, from the script's initial values."""
    executor = staged_executor(script, pipeline, agreement, batch_norm)
    losses = [
        executor.run([script.loss], [script.train], values)[script.loss] for values in script.feeds
    ]
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables)
