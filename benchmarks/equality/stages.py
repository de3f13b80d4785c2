"""Random pipelines of stages against plain TensorFlow on one device, all ranks in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.equality.engine import (
    Array,
    Price,
    Script,
    Trained,
    choices_of,
    draw,
    planned_of,
    random_prices,
)
from collectives.sequence import Sequence as CollectiveSequence
from tensoropt.execution.custom_gradients import forgotten_afterwards
from tensoropt.execution.draws import Draws
from tensoropt.execution.edge import PlanSteps
from tensoropt.execution.staged import StagedEmitter, StageRanks
from tensoropt.execution.whole_variables import read_shards, write
from tensoropt.execution.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.ordering import reads_first
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import fitted, input_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.parallel.strategy import derivation_of
from tensoropt.pipeline.microbatches.cut import cut_along_batch
from tensoropt.pipeline.staged.stage_graph import StagedStep
from tensoropt.pipeline.staged.staged import staged
from tensoropt.pipeline.stages.schedule import SCHEDULES, Schedule

__all__ = ["DrawnPipeline", "draw_pipeline", "train_pipeline"]

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, eq=False)
class DrawnPipeline:
    """A pipeline drawn at random.

    Attributes:
        cuts: shares of the forward pass's operators at which the next stage begins.
        stages: what each runs on.
        microbatches: of a step.
        schedule: the order of passes.
    """

    cuts: tuple[float, ...]
    stages: tuple[StageRanks, ...]
    microbatches: int
    schedule: Schedule


def draw_pipeline(script: Script, random: np.random.Generator) -> DrawnPipeline:
    """Two to four stages of one or two devices, each with a random strategy, anywhere cut."""
    count = int(random.integers(2, 5))
    stages = []
    for _ in range(count):
        mesh, batch = Mesh.of(int(random.integers(1, 3))), batch_of(script)
        numbers = draw(script.imported(), choices_of(script, mesh, batch), mesh, random).numbers
        planned = planned_of(script, mesh, numbers, batch)
        price = random_prices(int(random.integers(100)))
        stages.append(StageRanks(SingleProcessWorld(mesh), planned, _planner(mesh, price)))
    return DrawnPipeline(
        tuple(sorted(random.random(count - 1).tolist())),
        tuple(stages),
        int(random.choice([2, 4, 8])),
        SCHEDULES[int(random.integers(len(SCHEDULES)))],
    )


def batch_of(script: Script) -> frozenset[str]:
    """The placeholders whose first dimension is the batch."""
    return frozenset(name for name, value in script.feeds[0].items() if value.ndim)


def train_pipeline(script: Script, drawn: DrawnPipeline) -> Trained:
    """Train with a pipeline, from the values that plain TensorFlow begins with."""
    loss = TensorName.parse(script.loss)
    graph = reads_first(import_graph(script.graph, [script.train, loss.operator], script.shapes))
    step = _step(graph, script, drawn, loss.operator)
    initial = _initial(script)
    target = tf.Graph()
    with target.as_default(), forgotten_afterwards(), CollectiveSequence():
        emitter = StagedEmitter(script.graph, step, drawn.stages, batch_of(script), 1, target)
        emitter.emit()
        fetched = [emitter.logical(loss), emitter.operations([script.train])]
    with v1.Session(graph=target) as session:
        _assign(session, emitter, drawn, initial)
        losses, draws = [], Draws()
        for values in script.feeds:
            fed, drew = _fed(emitter, values, draws)
            losses.append(session.run(fetched, fed)[0])
            draws.advance(drew)
        variables = _variables(session, emitter, drawn, initial)
    names = dict(zip(_operators(script), script.variables, strict=True))
    return Trained(np.array(losses), {names[name]: value for name, value in variables.items()})


def _planner(mesh: Mesh, price: Price) -> PlanSteps:
    def plan_steps(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        if source == target:
            return ()
        itemsize = TensorSpec((), dtype).itemsize
        return plan_reshard(mesh, tuple(shape), itemsize, source, target, price)

    return plan_steps


def _step(graph: Graph, script: Script, drawn: DrawnPipeline, loss: str) -> StagedStep:
    cut = cut_along_batch(graph, batch_of(script), drawn.microbatches)
    names = [name for name in cut.indices if not graph[name].is_placeholder]
    places = np.searchsorted(drawn.cuts, np.linspace(0, 1, len(names)), side="right")
    stages = {name: int(place) for name, place in zip(names, places, strict=True)}

    def alike(copied: Operator, number: int) -> object:
        ranks = drawn.stages[stages[copied.copy_of]]
        derivation = derivation_of(copied)
        planned = fitted(ranks.configurations[copied.copy_of], derivation, ranks.world.mesh)
        return input_slot(derivation, planned, number)

    return staged(cut, stages, [script.train, loss], drawn.schedule, alike)


def _operators(script: Script) -> list[str]:
    """The variables' operators, in the order of `Script.variables`."""
    with script.graph.as_default():
        variables = v1.global_variables()
    return [(v.handle if hasattr(v, "handle") else v.op.outputs[0]).op.name for v in variables]


def _initial(script: Script) -> dict[str, Array]:
    with script.graph.as_default(), v1.Session(graph=script.graph) as session:
        session.run([variable.initializer for variable in v1.global_variables()])
        return dict(zip(_operators(script), session.run(script.variables), strict=True))


def _assign(
    session: Any, emitter: StagedEmitter, drawn: DrawnPipeline, values: Mapping[str, Array]
) -> None:
    fed, assigned = {}, []
    with session.graph.as_default():
        for store, ranks in zip(emitter.variables, drawn.stages, strict=True):
            for name, layout in store.layouts.items():
                value, world = values[name], ranks.world
                for rank, shard in zip(world.ranks, store[name], strict=True):
                    placeholder = v1.placeholder(value.dtype)
                    fed[placeholder] = value[layout.region(value.shape, world.mesh, rank)]
                    assigned.append(write(shard, placeholder))
    session.run(assigned, fed)


def _fed(
    emitter: StagedEmitter, values: Mapping[str, Array], draws: Draws
) -> tuple[dict[Any, Array], dict[Any, int]]:
    """What a step is fed, and how many elements its random operators draw."""
    fed: dict[Any, Array] = {}
    for each in emitter.fed():
        for placeholder, region in zip(each.placeholders, each.regions, strict=True):
            fed[placeholder] = values[each.name][region]
    drew: dict[Any, int] = {}
    for own in (each.draws for each in emitter.emitters):
        if own.counters is not None:
            fed[own.counters] = draws.counters(own.operators)
        drew |= {op: count for op, count in own.elements.items() if isinstance(count, int)}
    return fed, drew


def _variables(
    session: Any, emitter: StagedEmitter, drawn: DrawnPipeline, like: Mapping[str, Array]
) -> dict[str, Array]:
    found = {}
    with session.graph.as_default():
        for store, ranks in zip(emitter.variables, drawn.stages, strict=True):
            for name, layout in store.layouts.items():
                dtype = tf.as_dtype(like[name].dtype)
                whole, world = np.zeros_like(like[name]), ranks.world
                shards = session.run(read_shards(store[name], dtype))
                for rank, shard in zip(world.ranks, shards, strict=True):
                    whole[layout.region(whole.shape, world.mesh, rank)] = shard
                found[name] = whole
    return found
