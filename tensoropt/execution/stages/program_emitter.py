"""Emits a program: the operators of one or more stages, in one order.

Each stage has a world, a strategy and an emitter of its own. If another stage reads a tensor, the
ranks of the tensor's stage send it to the ranks of the other stage. A process that emits one of
several stages goes through the operators of all stages in their order, and leaves out those of
other stages.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tensorflow as tf

from tensoropt.execution.edges.checks import Checks
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.lowering.draws import ProgramDraws
from tensoropt.execution.lowering.emission import Emission
from tensoropt.execution.lowering.fed_shards import FedShards
from tensoropt.execution.lowering.stage_emitter import StageEmitter
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.stages.stage_strategies import DividedStep
from tensoropt.execution.stages.transfers import Transfers
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.tdl.ops.random import STATEFUL
from tensoropt.transformations.staged.assignment import SHARED
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = ["ProgramEmitter"]


class ProgramEmitter:
    """Emits the stages of a program that are in this process.

    Args:
        emission: the source and the target of the program.
        divided: the operators of the program, with the strategies of the stages.
        pipeline: the ranks of the stages.

    Attributes:
        graph: the operators of all stages.
        strategies: the strategy of each stage.
        draws: the random operators.
        checks: the operators that check values.
        always: operations that run whatever is fetched: changes of variables, if there are several
            stages. A fetch of one stage does not depend on changes in other stages.
        sends: whether stages in other processes receive tensors from this one.
    """

    def __init__(self, emission: Emission, divided: DividedStep, pipeline: Pipeline) -> None:
        step = divided.step
        self.graph = step.graph
        self.strategies = divided.strategies
        self.draws = ProgramDraws(step.graph, emission.options.seed)
        self.always: list[tf.Operation] = []
        self.sends = pipeline.everyone is not None
        self._emission = emission
        self._step = step
        self._stages = pipeline.stages
        self.checks = _checks(emission, step.graph, pipeline)
        self._emitters = {
            number: StageEmitter(
                emission, strategy, ranks.world, ranks.plan_steps, self.draws, self.checks
            )
            for number, (ranks, strategy) in enumerate(
                zip(self._stages, self.strategies, strict=True)
            )
            if ranks.world.ranks
        }
        self._transfers = Transfers(
            step, self._stages, self.strategies, self._shards, pipeline.everyone
        )

    def lines(self) -> list[str]:
        """Return the order of all operators and transfers as text. It is the same on all ranks."""
        stage_of = self._step.stage_of
        meshes = [f"stage {n} of {each.world.mesh}" for n, each in enumerate(self._stages)]
        operators = [f"stage {stage_of[op.name]}: {op.summary()}" for op in self.graph]
        return [*meshes, *operators, *self._transfers.lines()]

    def emit(self) -> None:
        """Emit all operators of the stages in this process. The target graph is the default."""
        for emitter in self._emitters.values():
            for operator in emitter.graph:
                if self._step.stage_of[operator.name] == SHARED:
                    emitter.emit_one(operator)
        operators = [op for op in self.graph if self._step.stage_of[op.name] != SHARED]
        first = next((n for n, op in enumerate(operators) if op.mutates), len(operators))
        late = {operator.name for operator in operators[first:]}
        for operator in operators[:first]:
            self._emit_one(operator, late)
        with self._emission.target.control_dependencies(self.checks.close()):
            for operator in operators[first:]:
                self._emit_one(operator, late)

    def _emit_one(self, operator: Operator, late: Collection[str]) -> None:
        """Emit an operator, and send its outputs to stages that read them.

        Args:
            operator: an operator of any stage.
            late: the operators after the checks. Their outputs are sent after the checks, too.
        """
        name, stage = operator.name, self._step.stage_of[operator.name]
        emitter, strategy = self._emitters.get(stage), self.strategies[stage]
        if operator.type == TRANSFER:
            if name in late and operator.inputs[0].operator not in late:
                self._transfers.send(name)
            if emitter is not None:
                emitter.receive(strategy.graph[name], self._transfers.receive(name))
        elif emitter is not None:
            emitter.emit_one(strategy.graph[name])
            if operator.mutates and self._step.last > 0:
                self.always += emitter.operations(name)
        elif operator.is_variable:
            emission, world = self._emission, self._stages[stage].world
            emission.variables.get(emission.script, operator, strategy, world)
        elif operator.type in STATEFUL:
            self.draws.note(operator)
        for transfer in self._transfers.of(name):
            if (transfer in late) == (name in late):
                operations = self._transfers.send(transfer)
                if emitter is not None:
                    emitter.note_sent(name, operations)

    def knows(self, name: str) -> bool:
        """Whether an operator of the script can be run or fetched."""
        return name in self.graph or name in self._step.runs

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, on all ranks of this process that have it."""
        return [
            operation
            for each in self._step.runs.get(name, (name,))
            if (emitter := self._emitters.get(self._stage_of(each))) is not None
            for operation in emitter.operations(each)
        ]

    def owner(self, tensor: TensorName) -> int | None:
        """The first rank of a tensor's stage; None if every rank gets the whole tensor."""
        if not self.sends:
            return None
        return self._stages[self._stage_of(tensor.operator)].world.first

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor | None:
        """Return a whole tensor on the first rank of its stage; None in processes of other stages.

        See `StageEmitter.logical`.
        """
        emitter = self._emitters.get(self._stage_of(tensor.operator))
        return None if emitter is None else emitter.logical(tensor, after)

    def fed(self) -> dict[str, FedShards]:
        """The shards of fed values, by stage and operator."""
        return {
            f"stage_{number}/{name}": shards
            for number, emitter in self._emitters.items()
            for name, shards in emitter.fed().items()
        }

    def _stage_of(self, name: str) -> int:
        """The stage of an operator; the first one if several stages have the operator."""
        stage = self._step.stage_of[name]
        if stage != SHARED:
            return stage
        return next(n for n, strategy in enumerate(self.strategies) if name in strategy.graph)

    def _shards(self, stage: int, tensor: TensorName) -> list[tf.Tensor]:
        return self._emitters[stage].shards(tensor)


def _checks(emission: Emission, graph: Graph, pipeline: Pipeline) -> Checks:
    """The operators of a program that check values, on all ranks.

    Several stages in one process need no common checks: if one fails, the whole run fails.
    """
    first, everyone = pipeline.stages[0], pipeline.everyone
    checked = emission.checked if everyone is not None or pipeline.last == 0 else ()
    names = frozenset(op.name for op in graph if op.script_name in checked)
    if everyone is None:
        world, plan_steps = first.world, first.plan_steps
    else:
        world, plan_steps = everyone, _fewest_steps(everyone.mesh)
    return Checks(emission.script, names, world, plan_steps, emission.target)


def _fewest_steps(mesh: Mesh) -> PlanSteps:
    """Return a function that plans reshardings on a mesh with the fewest collectives."""

    def plan_steps(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        itemsize = tf.as_dtype(dtype).size
        return plan_reshard(mesh, tuple(shape), itemsize, source, target, lambda *_: 1)

    return plan_steps
