"""A pipeline's step on the ranks of its stages, all of them in this process.

Each stage has a world, a strategy and an emitter of its own; operators are emitted in the step's
one order, and what a stage reads of another goes from its ranks to those of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edge import PlanSteps
from tensoropt.execution.emitter import Emitter
from tensoropt.execution.microbatches import PinnedStrategy
from tensoropt.execution.program import FedShards, fed_shards
from tensoropt.execution.variables import VariableStore
from tensoropt.execution.world import World
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.transfer import Region, messages
from tensoropt.pipeline.staged.assignment import SHARED
from tensoropt.pipeline.staged.stage_graph import TRANSFER, StagedStep

__all__ = ["StageRanks", "StagedEmitter"]


@dataclass(frozen=True, slots=True, eq=False)
class StageRanks:
    """What a stage runs on.

    Attributes:
        world: its ranks.
        configurations: of the script's operators, on its mesh.
        plan_steps: plans a resharding between its ranks.
    """

    world: World
    configurations: Mapping[str, Configuration]
    plan_steps: PlanSteps


class StagedEmitter:
    """Emits a pipeline's step.

    Args:
        script: the script's graph, for the attributes.
        step: what is emitted.
        stages: what each stage runs on.
        batch_placeholders: placeholders whose first dimension is the batch.
        seed: the job's, for random operators that have none.
        target: TensorFlow graph to emit into; it must be the default.

    Attributes:
        variables: by stage.
        emitters: by stage.
    """

    def __init__(
        self,
        script: tf.Graph,
        step: StagedStep,
        stages: Sequence[StageRanks],
        batch_placeholders: frozenset[str],
        seed: int,
        target: tf.Graph,
    ) -> None:
        self._step = step
        self._stages = stages
        self.variables = [VariableStore() for _ in stages]
        self.strategies: list[PinnedStrategy] = []
        self.emitters: list[Emitter] = []
        for number, ranks in enumerate(stages):
            graph = step.of_stage(number)
            strategy = PinnedStrategy(
                graph, ranks.world.mesh, ranks.configurations, batch_placeholders
            )
            self.strategies.append(strategy)
            self.emitters.append(
                Emitter(
                    script,
                    graph,
                    strategy,
                    ranks.world,
                    self.variables[number],
                    ranks.plan_steps,
                    seed,
                    target,
                )
            )

    def emit(self) -> None:
        """Emit all operators."""
        for strategy, emitter in zip(self.strategies, self.emitters, strict=True):
            for operator in strategy.graph:
                if self._step.stage_of[operator.name] == SHARED:
                    emitter.emit_one(operator)
        for operator in self._step.graph:
            stage = self._step.stage_of[operator.name]
            if stage == SHARED:
                continue
            own = self.strategies[stage].graph[operator.name]
            if operator.type == TRANSFER:
                self.emitters[stage].receive(own, self._transferred(operator, stage))
            else:
                self.emitters[stage].emit_one(own)

    def operations(self, roots: Collection[str]) -> list[tf.Operation]:
        """What is run for some operators, on all ranks of all stages.

        No operator waits for one of another stage that it reads nothing of, so changes of variables
        are run by themselves.
        """
        names = [each for name in roots for each in self._step.runs.get(name, (name,))]
        names += [operator.name for operator in self._step.graph if operator.mutates]
        return [
            operation
            for name in dict.fromkeys(names)
            for operation in self.emitters[self._step.stage_of[name]].operations(name)
        ]

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor:
        """A whole tensor, as the first rank of its stage has it."""
        return self.emitters[self._step.stage_of[tensor.operator]].logical(tensor, after)

    def fed(self) -> list[FedShards]:
        """How what is fed gets to the ranks."""
        found: list[FedShards] = []
        for strategy, emitter, ranks in zip(
            self.strategies, self.emitters, self._stages, strict=True
        ):
            world = ranks.world
            found += fed_shards(
                emitter.placeholders, strategy.graph, strategy, world.mesh, world.ranks
            ).values()
        return found

    def _transferred(self, operator: Operator, stage: int) -> list[tf.Tensor]:
        """The shards of what a stage receives, one on each of its ranks."""
        (tensor,) = operator.inputs
        source = self._step.stage_of[tensor.operator]
        here, there = self._stages[source], self._stages[stage]
        made = self.strategies[source].output_slot(tensor).forward
        layout = Layout(made.dims)
        shape, dtype = operator.outputs[0].shape, operator.outputs[0].dtype
        steps = here.plan_steps(shape, dtype, made, layout)
        shards = self.emitters[source].made(tensor)
        if steps:
            shards = here.world.reshard(shards, steps, f"{tensor.operator}/send")
        wanted = self.strategies[stage].output_slot(TensorName(operator.name, 0)).forward
        mesh, others = here.world.mesh, there.world.mesh
        received: dict[int, dict[Region, tf.Tensor]] = {rank: {} for rank in there.world.ranks}
        with tf.name_scope(operator.name):
            for each in messages(shape, layout, mesh, wanted, others):
                first = [part.start for part in layout.region(shape, mesh, each.source)]
                begin = [start - at for (start, _), at in zip(each.region, first, strict=True)]
                size = [stop - start for start, stop in each.region]
                shard = shards[each.source]
                sent = tf.slice(shard, begin, size) if size else tf.identity(shard)
                received[each.target][each.region] = sent
            return [_joined(received[rank], 0) for rank in there.world.ranks]


def _joined(parts: Mapping[Region, tf.Tensor], dim: int) -> tf.Tensor:
    """A tensor of the parts that it falls into, from one dimension on."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    rows: dict[tuple[int, int], dict[Region, tf.Tensor]] = {}
    for region, part in sorted(parts.items(), key=lambda item: item[0]):
        rows.setdefault(region[dim], {})[region] = part
    joined = [_joined(row, dim + 1) for row in rows.values()]
    return tf.concat(joined, dim) if len(joined) > 1 else joined[0]
