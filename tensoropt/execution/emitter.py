"""Emission: one operator after the other, on every rank of a world, at local shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.execution import rules
from tensoropt.execution.attributes import tensorflow_attributes
from tensoropt.execution.borrowing import Borrowing, may_write, read_pieces
from tensoropt.execution.draws import ProgramDraws
from tensoropt.execution.edge import PlanSteps
from tensoropt.execution.emission import Emission
from tensoropt.execution.emitted import Emitted
from tensoropt.execution.functions import Functions, seed_operator
from tensoropt.execution.inputs import Inputs
from tensoropt.execution.rank_gradients import RankGradients
from tensoropt.execution.remaking import Remaking
from tensoropt.execution.rules.random import TYPES as RANDOM_TYPES
from tensoropt.execution.variables import VariableStore
from tensoropt.execution.world import World
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import rescaling
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy

__all__ = ["Emitter"]

# What acts on the world outside, and returns nothing: the first rank does it for all.
_ONCE = frozenset(
    {"MergeV2Checkpoints", "PrintV2", "Save", "SaveSlices", "SaveV2", "WriteFile"}
    | {"FlushSummaryWriter", "WriteSummary", "WriteScalarSummary", "WriteHistogramSummary"}
)


class Emitter:
    """Emits one program: what a set of fetches needs of a graph, under a strategy.

    Args:
        script: the script's TensorFlow graph, for the attributes.
        graph: the part of it to emit, with shapes bound.
        strategy: a configuration for each of its operators.
        world: the ranks emitted here.
        variables: the variables that all programs share.
        plan_steps: plans a resharding.
        seed: the job's seed, for random operators that have none.
        target: TensorFlow graph to emit into; the default one while the emitter is used.
        unset: variables that have no value before this program.
    """

    def __init__(
        self,
        script: tf.Graph,
        graph: Graph,
        strategy: Strategy,
        world: World,
        variables: VariableStore,
        plan_steps: PlanSteps,
        seed: int,
        target: tf.Graph,
        unset: frozenset[str] = frozenset(),
    ) -> None:
        self._script = script
        self._graph = graph
        self._strategy = strategy
        self._world = world
        self._variables = variables
        self._plan_steps = plan_steps
        self._seed = seed
        self._target = target
        self._functions = Functions(script)
        self._emitted = Emitted(graph, world, target)
        emission = Emission(graph, strategy, world, self._emitted, plan_steps, target)
        self._gradients = RankGradients(emission, lambda: self._remaking.next_call())
        self._inputs = Inputs(emission, self._gradients.is_now_sparse)
        self._remaking = Remaking(
            emission, self._inputs, lambda: backward_reads(script, graph), self._computed
        )
        self._borrowing = Borrowing(strategy, world, self._emitted, plan_steps, unset)
        self.placeholders: dict[str, list[tf.Tensor]] = {}
        self.draws = ProgramDraws(graph, seed)

    def emit(self) -> None:
        """Emit every operator of the graph. The target graph must be the default."""
        for operator in self._graph:
            if operator.is_variable:
                handles = self._variables.get(self._script, operator, self._strategy, self._world)
                self._emitted.record(operator, [[handle] for handle in handles])
            elif operator.is_placeholder:
                self._emitted.record(operator, self._placeholder(operator))
            elif operator.gradient is not None:
                self._emitted.record(
                    operator, [[piece] for piece in self._gradients.pieces(operator)]
                )
            elif operator.is_constant:
                if not self._emitted.is_cut_where_read(operator):
                    self._emitted.record_constant(operator)
            else:
                self._emit_operator(operator)

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, one per rank."""
        return self._emitted.operations(name)

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor:
        """The whole, true tensor, as this process's first rank holds it after resharding.

        Args:
            tensor: what is fetched.
            after: what else is. A variable that is fetched itself has its value after these.
        """
        source = self._strategy.output_slot(tensor)
        spec = self._graph.spec(tensor)
        pieces = self._emitted.pieces(tensor)
        if self.is_variable(tensor):
            variable = self._graph[tensor.operator]
            with self._target.control_dependencies(after):
                if variable.type == "ReadVariableOp":
                    pieces = read_pieces(self._emitted.pieces(variable.inputs[0]), pieces[0].dtype)
                pieces = [tf.identity(piece) for piece in pieces]
        pieces = [tf.identity(piece) for piece in pieces]
        target = Layout.replicated(len(source.forward.dims))
        steps = self._plan_steps(spec.shape, pieces[0].dtype.name, source.forward, target)
        label = f"{tensor.operator}/fetch"
        return self._world.reshard(pieces, steps, label)[0] if steps else pieces[0]

    def is_variable(self, tensor: TensorName) -> bool:
        """Whether a fetched tensor is a variable's value, when that is left open."""
        operator = self._graph[tensor.operator]
        read = operator.type == "ReadVariableOp" and not operator.control_inputs
        return operator.is_variable or read

    def _placeholder(self, operator: Operator) -> list[list[tf.Tensor]]:
        spec = operator.outputs[0]
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        shape = layout.local_shape(spec.shape, self._world.mesh)
        pieces = [
            tf.compat.v1.placeholder(spec.dtype, shape, name=operator.name)
            for _ in self._world.ranks
        ]
        self.placeholders[operator.name] = pieces
        return [[piece] for piece in pieces]

    def _emit_operator(self, operator: Operator) -> None:
        inputs = self._inputs.of(operator)
        if self._borrowing.borrowed(operator):
            original = self._script.get_operation_by_name(operator.name)
            writes = may_write(self._functions, original)
            self._borrowing.emit(operator, inputs, self._create, writes)
            return
        inputs = self._given(operator, inputs)
        if operator.type in RANDOM_TYPES:
            self._emitted.record(operator, [[piece] for piece in self._random(operator, inputs)])
            return
        again = self._remaking.concerns(operator)
        if self._rule(operator, inputs) is not None:
            before = self._emitted.before_on_all(operator)
            made = self._remaking.spelled_out if again else self._computed
            with tf.name_scope(operator.name), self._target.control_dependencies(before):
                outputs = made(operator, inputs)
            self._emitted.record(operator, outputs)
            return
        inputs = rules.local_operands(self._world, operator, self._strategy, inputs)
        outputs, operations = [], []
        for position, rank in enumerate(self._world.ranks):
            own = [pieces[position] for pieces in inputs]
            with contextlib.ExitStack() as stack:
                stack.enter_context(
                    self._target.control_dependencies(self._emitted.before(operator, position))
                )
                if operator.type in _ONCE and rank != 0:
                    # It waits for its inputs, too: ranks move them together.
                    operation = tf.group(*own)
                else:
                    if again:
                        replaced = frozenset(self._given_operands(operator))
                        stack.enter_context(self._remaking.gradient(operator, position, replaced))
                    operation = self._create(operator, own)
            self._say_shapes(operator, operation)
            outputs.append(self._rescaled(operator, list(operation.outputs)))
            operations.append(operation)
        self._emitted.record(operator, outputs, operations)

    def _rule(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> rules.Rule | None:
        """What spells an operator out under its configuration, if its kernel does not do."""
        rule = rules.lookup(operator, self._strategy)
        if inputs and looks_up_rows(operator, 0) and inputs[0][0].dtype == tf.resource:
            rule = rules.rows.gather
        return rule

    def _computed(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """Per rank the outputs of an operator on given inputs; nothing is recorded."""
        rule = self._rule(operator, inputs)
        if rule is not None:
            configuration = self._strategy.configurations[operator.name]
            derivation = self._strategy.derivations[operator.name]
            made = rule(self._world, operator, derivation, configuration, inputs)
            return [list(pieces) for pieces in zip(*made, strict=True)]
        inputs = self._given(operator, inputs)
        outputs = []
        for position in range(len(self._world.ranks)):
            operation = self._create(operator, [pieces[position] for pieces in inputs])
            self._say_shapes(operator, operation)
            outputs.append(self._rescaled(operator, list(operation.outputs)))
        return outputs

    def _random(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        pieces = []
        for position, rank in enumerate(self._world.ranks):
            own = [given[position] for given in inputs]
            before = self._emitted.before(operator, position)
            with tf.name_scope(operator.name), self._target.control_dependencies(before):
                drawn = self.draws.draw(operator, own, layout, self._world.mesh, rank)
            pieces.append(drawn)
        return pieces

    def _say_shapes(self, operator: Operator, operation: tf.Operation) -> None:
        """Tell TensorFlow the pieces' shapes where it does not find them again by itself."""
        for number, tensor in enumerate(operation.outputs):
            shape = operator.outputs[number].shape
            if tensor.shape.rank != len(shape) or tensor.shape.is_fully_defined() or -1 in shape:
                continue
            layout = self._strategy.output_slot(TensorName(operator.name, number)).forward
            tensor.set_shape(layout.local_shape(shape, self._world.mesh))

    def _rescaled(self, operator: Operator, outputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """A kernel that divides by the extent it sees (Mean) gives a partial sum once scaled."""
        derivation = self._strategy.derivations[operator.name]
        configuration = self._strategy.configurations[operator.name]
        scale = rescaling(derivation, configuration, self._world.mesh)
        if scale == 1:
            return outputs
        return [output * tf.constant(float(scale), output.dtype) for output in outputs]

    def _create(self, operator: Operator, inputs: Sequence[tf.Tensor]) -> tf.Operation:
        if operator.type == "NoOp":
            return tf.no_op(operator.name)
        local = self._local_form(operator)
        attributes = tensorflow_attributes(self._script, operator, local)
        seed_operator(attributes, operator.name, self._seed)
        attributes = self._functions.copy_into(self._target, attributes, self._seed)
        return self._target.create_op(
            operator.type,
            list(inputs),
            dtypes=[tf.as_dtype(spec.dtype) for spec in operator.outputs],
            attrs=attributes,
            name=operator.name,
        )

    def _given(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """The inputs, those replaced that speak of the whole tensor."""
        inputs = list(inputs)
        for number, value in self._given_operands(operator).items():
            own = tf.constant(value, inputs[number][0].dtype)
            inputs[number] = [own] * len(self._world.ranks)
        return inputs

    def _given_operands(self, operator: Operator) -> dict[int, object]:
        local = self._local_form(operator)
        return {number: value for number, value in local.items() if isinstance(number, int)}

    def _local_form(self, operator: Operator) -> Mapping[int | str, object]:
        """The operands and attributes that the kernel on a piece is given instead."""
        return local_form(
            self._strategy.derivations[operator.name],
            self._strategy.configurations[operator.name],
            self._world.mesh,
            operator.input_specs,
            operator.attributes,
        )
