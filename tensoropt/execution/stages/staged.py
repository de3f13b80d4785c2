"""A pipeline's step on the ranks of its stages: all of them in this process, or one stage's.

Each stage has a world, a strategy and an emitter of its own; operators are emitted in the step's
one order, and what a stage reads of another goes from its ranks to those of the other. A process
that emits one stage alone walks through the whole order, too, and leaves out what is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from tensoropt.execution.edges.checks import Checks
from tensoropt.execution.lowering.draws import ProgramDraws
from tensoropt.execution.lowering.emitter import Emitter, reads_variable
from tensoropt.execution.lowering.fed_shards import FedShards
from tensoropt.execution.lowering.microbatches import PinnedStrategy
from tensoropt.execution.rules.random import STATEFUL
from tensoropt.execution.stages.stage_ranks import StageRanks
from tensoropt.execution.stages.transfers import Transfers
from tensoropt.execution.world.variables import VariableStore
from tensoropt.execution.world.world import MPIWorld
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.transformations.staged.assignment import SHARED
from tensoropt.transformations.staged.stage_graph import TRANSFER, StagedStep

__all__ = ["StagedEmitter"]


class StagedEmitter:
    """Emits a pipeline's step, as much of it as this process has.

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
        checked: the script's operators that fail on all ranks alike, see `Checks`.
        everyone: see `tensoropt.execution.stages.stage_ranks.Pipeline`.
        reads: gives what the gradients of the script's operators read.
        makes_again: see `PinnedStrategy`.

    Attributes:
        graph: all operators, of all stages.
        draws, checks: as of `Emitter`.
        always: operations that are run whatever is fetched: no operator waits for one of another
            stage that it reads nothing of, so changes of variables are run by themselves.
        is_a_part: whether other processes emit other stages.
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
        checked: Collection[str] = (),
        everyone: MPIWorld | None = None,
        reads: Callable[[], BackwardReads] = BackwardReads,
        makes_again: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = step.graph
        self.draws = ProgramDraws(step.graph, seed)
        self.always: list[tf.Operation] = []
        self.is_a_part = everyone is not None
        self._script = script
        self._step = step
        self._stages = stages
        self._variables = variables
        self._target = target
        self.checks = self._checks(checked, everyone)
        self._graphs: list[Graph] = []
        self._strategies: list[PinnedStrategy] = []
        self._emitters: dict[int, Emitter] = {}
        for number, (ranks, planned) in enumerate(zip(stages, configurations, strict=True)):
            graph = step.of_stage(number)
            strategy = PinnedStrategy(
                graph, ranks.world.mesh, planned, batch_placeholders, makes_again
            )
            self._graphs.append(graph)
            self._strategies.append(strategy)
            if ranks.world.ranks:
                self._emitters[number] = Emitter(
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
                    checks=self.checks,
                    reads=reads,
                )
        self._transfers = Transfers(step, stages, self._strategies, self._made, everyone)

    def lines(self) -> list[str]:
        """The step's order and what goes between stages: the same on all ranks."""
        stage_of = self._step.stage_of
        meshes = [f"stage {n} of {each.world.mesh}" for n, each in enumerate(self._stages)]
        operators = [f"stage {stage_of[op.name]}: {op.summary()}" for op in self.graph]
        return [*meshes, *operators, *self._transfers.lines()]

    def emit(self) -> None:
        """Emit all operators of the stages that are in this process."""
        for emitter in self._emitters.values():
            for operator in emitter.graph:
                if self._step.stage_of[operator.name] == SHARED:
                    emitter.emit_one(operator)
        operators = [op for op in self.graph if self._step.stage_of[op.name] != SHARED]
        first = next((n for n, op in enumerate(operators) if op.mutates), len(operators))
        late = {operator.name for operator in operators[first:]}
        for operator in operators[:first]:
            self._emit_one(operator, late)
        with self._target.control_dependencies(self.checks.close()):
            for operator in operators[first:]:
                self._emit_one(operator, late)

    def _emit_one(self, operator: Operator, late: Collection[str]) -> None:
        """Emit an operator, and send it on to stages that read it.

        Args:
            operator: of some stage.
            late: what comes after checks that may fail. Nothing of it is sent before.
        """
        name, stage = operator.name, self._step.stage_of[operator.name]
        emitter = self._emitters.get(stage)
        if operator.type == TRANSFER:
            if name in late and operator.inputs[0].operator not in late:
                self._transfers.send(name)
            if emitter is not None:
                emitter.receive(self._graphs[stage][name], self._transfers.receive(name))
        elif emitter is not None:
            emitter.emit_one(self._graphs[stage][name])
            if operator.mutates:
                self.always += emitter.operations(name)
        elif operator.is_variable:
            world = self._stages[stage].world
            self._variables.get(self._script, operator, self._strategies[stage], world)
        elif operator.type in STATEFUL:
            self.draws.note(operator)
        for transfer in self._transfers.of(name):
            if (transfer in late) == (name in late):
                operations = self._transfers.send(transfer)
                if emitter is not None:
                    emitter.note_sent(name, operations)

    def knows(self, name: str) -> bool:
        """See `Emitter.knows`."""
        return name in self.graph or name in self._step.runs

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, on all ranks of its stages in this process."""
        return [
            operation
            for each in self._step.runs.get(name, (name,))
            if (emitter := self._emitters.get(self._stage_of(each))) is not None
            for operation in emitter.operations(each)
        ]

    def is_variable(self, tensor: TensorName) -> bool:
        """See `Emitter.is_variable`."""
        return reads_variable(self.graph[tensor.operator])

    def owner(self, tensor: TensorName) -> int | None:
        """See `Emitter.owner`: the first rank of its stage."""
        if not self.is_a_part:
            return None
        return self._stages[self._stage_of(tensor.operator)].world.first

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor | None:
        """A whole tensor, as the first rank of its stage has it; None in another process."""
        emitter = self._emitters.get(self._stage_of(tensor.operator))
        return None if emitter is None else emitter.logical(tensor, after)

    def fed(self) -> dict[str, FedShards]:
        """How what is fed gets to the ranks, by stage and operator."""
        return {
            f"stage_{number}/{name}": shards
            for number, emitter in self._emitters.items()
            for name, shards in emitter.fed().items()
        }

    def _stage_of(self, name: str) -> int:
        """The stage of an operator; of one that every stage may have, the first that does."""
        stage = self._step.stage_of[name]
        if stage != SHARED:
            return stage
        return next(number for number, graph in enumerate(self._graphs) if name in graph)

    def _made(self, stage: int, tensor: TensorName) -> list[tf.Tensor]:
        return self._emitters[stage].made(tensor)

    def _checks(self, checked: Collection[str], everyone: MPIWorld | None) -> Checks:
        """What fails on all ranks alike; nothing in one process, where all fail together."""
        if everyone is None:
            world, names = self._stages[0].world, frozenset[str]()
        else:
            world = everyone
            names = frozenset(op.name for op in self.graph if op.script_name in checked)

        def plan_steps(
            shape: Sequence[int], dtype: str, source: Layout, target: Layout
        ) -> tuple[ReshardStep, ...]:
            itemsize = tf.as_dtype(dtype).size
            return plan_reshard(world.mesh, tuple(shape), itemsize, source, target, lambda *_: 1)

        return Checks(self._script, names, world, plan_steps, self._target)
