"""A pipeline's step on the ranks of its stages, all of them in this process.

Each stage has a world, a strategy and an emitter of its own; operators are emitted in the step's
one order, and what a stage reads of another goes from its ranks to those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.execution.draws import ProgramDraws
from tensoropt.execution.emitter import Emitter
from tensoropt.execution.microbatches import PinnedStrategy
from tensoropt.execution.program import FedShards
from tensoropt.execution.stage_ranks import StageRanks
from tensoropt.execution.variables import VariableStore
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.transfer import Region, messages
from tensoropt.pipeline.staged.assignment import SHARED
from tensoropt.pipeline.staged.stage_graph import TRANSFER, StagedStep

__all__ = ["StagedEmitter"]


class StagedEmitter:
    """Emits a pipeline's step.

    Args:
        script: the script's graph, for the attributes.
        step: what is emitted.
        stages: what each stage runs on.
        configurations: per stage, of the script's operators.
        batch_placeholders: placeholders whose first dimension is the batch.
        variables: the variables that all programs share.
        seed: the job's, for random operators that have none.
        target: TensorFlow graph to emit into; it must be the default.
        unset: variables that have no value before this program.

    Attributes:
        graph: all operators, of all stages.
        draws, checks: as of `Emitter`.
        always: operations that are run whatever is fetched: no operator waits for one of another
            stage that it reads nothing of, so changes of variables are run by themselves.
    """

    def __init__(
        self,
        script: tf.Graph,
        step: StagedStep,
        stages: Sequence[StageRanks],
        configurations: Sequence[Mapping[str, Configuration]],
        batch_placeholders: frozenset[str],
        variables: VariableStore,
        seed: int,
        target: tf.Graph,
        unset: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = step.graph
        self.draws = ProgramDraws(step.graph, seed)
        self.always: list[tf.Operation] = []
        self._step = step
        self._stages = stages
        self._strategies: list[PinnedStrategy] = []
        self._emitters: list[Emitter] = []
        for number, (ranks, planned) in enumerate(zip(stages, configurations, strict=True)):
            graph = step.of_stage(number)
            strategy = PinnedStrategy(graph, ranks.world.mesh, planned, batch_placeholders)
            emitter = Emitter(
                script,
                graph,
                strategy,
                ranks.world,
                variables,
                ranks.plan_steps,
                seed,
                target,
                unset,
                draws=self.draws,
            )
            self._strategies.append(strategy)
            self._emitters.append(emitter)
        self.checks = self._emitters[0].checks  # none: in one process all fail together

    def emit(self) -> None:
        """Emit all operators."""
        for emitter in self._emitters:
            for operator in emitter.graph:
                if self._step.stage_of[operator.name] == SHARED:
                    emitter.emit_one(operator)
        for operator in self.graph:
            stage = self._step.stage_of[operator.name]
            if stage == SHARED:
                continue
            emitter = self._emitters[stage]
            own = emitter.graph[operator.name]
            if operator.type == TRANSFER:
                emitter.receive(own, self._transferred(operator, stage))
            else:
                emitter.emit_one(own)
            if operator.mutates:
                self.always += emitter.operations(operator.name)

    def knows(self, name: str) -> bool:
        """See `Emitter.knows`."""
        return name in self.graph or name in self._step.runs

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, on all ranks of its stages."""
        return [
            operation
            for each in self._step.runs.get(name, (name,))
            for operation in self._emitter_of(each).operations(each)
        ]

    def is_variable(self, tensor: TensorName) -> bool:
        """See `Emitter.is_variable`."""
        return self._emitter_of(tensor.operator).is_variable(tensor)

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor:
        """A whole tensor, as the first rank of its stage has it."""
        return self._emitter_of(tensor.operator).logical(tensor, after)

    def fed(self) -> dict[str, FedShards]:
        """How what is fed gets to the ranks, by stage and operator."""
        return {
            f"stage_{number}/{name}": shards
            for number, emitter in enumerate(self._emitters)
            for name, shards in emitter.fed().items()
        }

    def _emitter_of(self, name: str) -> Emitter:
        stage = self._step.stage_of[name]
        if stage != SHARED:
            return self._emitters[stage]
        return next(emitter for emitter in self._emitters if emitter.knows(name))

    def _transferred(self, operator: Operator, stage: int) -> list[tf.Tensor]:
        """The shards of what a stage receives, one on each of its ranks."""
        (tensor,) = operator.inputs
        source = self._step.stage_of[tensor.operator]
        here, there = self._stages[source], self._stages[stage]
        made = self._strategies[source].output_slot(tensor).forward
        layout = Layout(made.dims)
        shape, dtype = operator.outputs[0].shape, operator.outputs[0].dtype
        steps = here.plan_steps(shape, dtype, made, layout)
        shards = self._emitters[source].made(tensor)
        if steps:
            shards = here.world.reshard(shards, steps, f"{tensor.operator}/send")
        wanted = self._strategies[stage].output_slot(TensorName(operator.name, 0)).forward
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
