"""Emits a stage: one operator after the other, on every rank of a world, at local shapes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from collectives.sequence import active_sequence
from tensoropt.execution import rules
from tensoropt.execution.edges.checks import Checks
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.edges.gradient_reduction import GradientReducer
from tensoropt.execution.edges.inputs import Inputs
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.edges.whole_variables import WholeVariables, may_write
from tensoropt.execution.gradient_functions.matrix_products import GRADIENTS
from tensoropt.execution.lowering.attributes import name_state, tensorflow_attributes
from tensoropt.execution.lowering.draws import ProgramDraws
from tensoropt.execution.lowering.emission import Emission
from tensoropt.execution.lowering.fed_shards import FedShards, fed_shards
from tensoropt.execution.lowering.functions import (
    called_in_place,
    copy_functions,
    order_draws,
    seed_operator,
)
from tensoropt.execution.lowering.microbatches import TYPES_OF_MICROBATCHES, microbatch_shards
from tensoropt.execution.lowering.open_shapes import (
    local_operand,
    plans_at,
    static_shape,
    whole_shapes,
)
from tensoropt.execution.lowering.rank_gradients import RankGradients
from tensoropt.execution.lowering.recomputation import Recomputation
from tensoropt.execution.world.shard_table import ShardTable
from tensoropt.execution.world.variable_access import read_shards
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.configuration import rescaling
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.local_form import local_form, piece_shape
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import operator_type
from tensoropt.tdl.ops.random import DRAWN

__all__ = ["StageEmitter", "reads_variable"]

_Create = Callable[[Sequence[tf.Tensor]], tf.Operation]

_create_op = inspect.unwrap(tf.Graph.create_op)
"""TensorFlow's method without the check for a removed argument, which takes half of its time."""


class StageEmitter:
    """Emits the operators of one stage of a program, under the stage's strategy.

    Args:
        emission: the source and the target of the program.
        strategy: a configuration for each operator of the stage.
        world: the ranks of the stage that are emitted here.
        plan_steps: plans a resharding between these ranks.
        draws: the random operators of the program.
        checks: the operators of the program that check values.

    Attributes:
        graph: the stage's part of the script's graph, with shapes bound.
    """

    def __init__(
        self,
        emission: Emission,
        strategy: Strategy,
        world: World,
        plan_steps: PlanSteps,
        draws: ProgramDraws,
        checks: Checks,
    ) -> None:
        graph, sizes = strategy.graph, emission.sizes
        self._script = emission.script
        self.graph = graph
        self._strategy = strategy
        self._world = world
        self._variables = emission.variables
        self._seed = emission.options.seed
        if strategy.has_uneven_pieces and (sequence := active_sequence()) is not None:
            sequence.shards_differ = True
        self._target = emission.target
        self._emitted = ShardTable(graph, world, self._target)
        self._plan_steps = plan_steps = plans_at(plan_steps, sizes, world.mesh)
        context = ProgramContext(
            graph, strategy, world, self._emitted, plan_steps, self._target, sizes
        )
        options = emission.options
        buckets, as_bfloat16 = options.bucket_sizes(world.overlaps), options.compression is not None
        sums = GradientReducer(world, buckets, differentiates_gradients(graph), as_bfloat16)
        self._gradients = RankGradients(context, sums, lambda: self._recomputation.next_call())
        self._inputs = Inputs(context, self._gradients.is_now_sparse, sums)
        self._recomputation = Recomputation(context, self._inputs, emission.reads, self._computed)
        self._whole_variables = WholeVariables(
            strategy, world, self._emitted, plan_steps, emission.unset
        )
        self._placeholders: dict[str, list[tf.Tensor]] = {}
        self._draws = draws
        self._checks = checks

    def receive(self, operator: Operator, shards: list[tf.Tensor]) -> None:
        """Record the shards of a tensor that another stage has computed."""
        self._emitted.record(operator, [[shard] for shard in shards])

    def note_sent(self, name: str, operations: Sequence[tf.Operation]) -> None:
        """Note the operations that send an operator's output to another stage.

        Gradients that are emitted later wait for these operations.
        """
        self._emitted.sent.setdefault(name, []).extend(operations)

    def shards(self, tensor: TensorName) -> list[tf.Tensor]:
        """The shards of a tensor in its producer's layout, one per rank."""
        return self._emitted.shards(tensor)

    def emit_one(self, operator: Operator) -> None:
        """Emit an operator. The operators that it reads are emitted already."""
        with self._target.gradient_override_map(GRADIENTS):
            self._emit_one(operator)

    def _emit_one(self, operator: Operator) -> None:
        if operator.is_variable:
            handles = self._variables.get(self._script, operator, self._strategy, self._world)
            self._emitted.record(operator, [[handle] for handle in handles])
        elif operator.is_placeholder:
            self._emitted.record(operator, self._placeholder(operator))
        elif operator.gradient is not None:
            self._emitted.record(operator, [[shard] for shard in self._gradients.shards(operator)])
        elif operator.type in TYPES_OF_MICROBATCHES:
            self._emitted.record(operator, microbatch_shards(operator, self._inputs.of(operator)))
        elif operator.is_constant:
            if not self._emitted.is_cut_where_read(operator):
                self._emitted.record_constant(operator)
        else:
            self._emit_operator(operator)

    def fed(self) -> dict[str, FedShards]:
        """The shards of fed values, by fed operator."""
        return fed_shards(self._placeholders, self.graph, self._strategy, self._world)

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, one per rank."""
        return self._emitted.operations(name)

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor:
        """Return the whole tensor on this process's first rank.

        Args:
            tensor: the fetched tensor.
            after: the other fetched operations. A fetched variable is read after them.
        """
        source = self._strategy.output_slot(tensor)
        spec = self.graph.spec(tensor)
        shards = self._emitted.shards(tensor)
        operator = self.graph[tensor.operator]
        is_variable = reads_variable(operator)
        with self._target.control_dependencies(after if is_variable else ()):
            if is_variable and operator.type == "ReadVariableOp":
                shards = read_shards(self._emitted.shards(operator.inputs[0]), shards[0].dtype)
            shards = [tf.identity(shard) for shard in shards]
        target = Layout.replicated(len(source.forward.dims))
        steps = self._plan_steps(spec.shape, shards[0].dtype.name, source.forward, target)
        label = f"{tensor.operator}/fetch"
        return self._world.reshard(shards, steps, label)[0] if steps else shards[0]

    def _placeholder(self, operator: Operator) -> list[list[tf.Tensor]]:
        spec = operator.outputs[0]
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        mesh = self._world.mesh
        shapes = [piece_shape(layout, spec.shape, mesh, rank) for rank in self._world.ranks]
        shards = [
            tf.compat.v1.placeholder(spec.dtype, static_shape(shape), name=operator.name)
            for shape in shapes
        ]
        self._placeholders[operator.name] = shards
        return [[shard] for shard in shards]

    def _emit_operator(self, operator: Operator) -> None:
        """Emit an operator that TensorFlow has a kernel of, or that a rule lowers."""
        if operator.type in SHAPE_TYPES:
            self._emit_shape(operator)
            return
        inputs = self._inputs.of(operator)
        if self._whole_variables.gathered(operator):
            original = self._script.get_operation_by_name(operator.name)
            writes = may_write(self._script, original)
            self._whole_variables.emit(operator, inputs, self._kernel(operator, 0), writes)
            return
        if operator.type in DRAWN:
            self._emitted.record(operator, [[shard] for shard in self._random(operator, inputs)])
            return
        inputs = self._with_replaced(operator, inputs)
        recomputes = self._recomputation.concerns(operator)
        if self._rule(operator, inputs) is not None:
            before = self._emitted.before_on_all(operator)
            lower = self._recomputation.lowered if recomputes else self._computed
            with tf.name_scope(operator.name), self._target.control_dependencies(before):
                outputs = lower(operator, inputs)
            self._emitted.record(operator, outputs)
            return
        self._emit_kernels(operator, inputs, recomputes)

    def _emit_kernels(
        self, operator: Operator, inputs: list[list[tf.Tensor]], recomputes: bool
    ) -> None:
        """Emit an operator's kernel on each rank."""
        inputs = rules.local_operands(self._world, operator, self._strategy, inputs)
        kernels = self._kernels(operator)
        outputs, operations = [], []
        for position, rank in enumerate(self._world.ranks):
            create = kernels[position]
            local = [shards[position] for shards in inputs]
            with contextlib.ExitStack() as stack:
                stack.enter_context(
                    self._target.control_dependencies(self._emitted.before(operator, position))
                )
                if operator_type(operator.type).writes_files and rank != 0:
                    # Its inputs are awaited here, too: all ranks take part in moving them.
                    operation = tf.group(*local)
                else:
                    if recomputes:
                        replaced = frozenset(self._replaced_operands(operator, rank))
                        stack.enter_context(
                            self._recomputation.gradient(operator, position, replaced)
                        )
                    operation = create(local)
                    name_state(operation, operator.name, rank)
            self._set_shapes(operator, operation, rank)
            outputs.append(self._rescaled(operator, list(operation.outputs), rank))
            operations.append(operation)
        self._emitted.record(operator, outputs, operations)

    def _emit_shape(self, operator: Operator) -> None:
        """Emit an operator that returns shapes: those of whole tensors, not of shards."""
        layouts = [self._strategy.output_slot(tensor).forward for tensor in operator.inputs]
        shards = [self._emitted.shards(tensor) for tensor in operator.inputs]
        outputs = []
        for position in range(len(self._world.ranks)):
            local = [of_ranks[position] for of_ranks in shards]
            with (
                tf.name_scope(operator.name),
                self._target.control_dependencies(self._emitted.before(operator, position)),
            ):
                outputs.append(whole_shapes(operator, local, layouts, self._world.mesh))
        self._emitted.record(operator, outputs)

    def _rule(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> rules.Rule | None:
        """The rule that lowers an operator under its configuration; None if its kernel does."""
        rule = rules.lookup(operator, self._strategy)
        if inputs and looks_up_rows(operator, 0) and inputs[0][0].dtype == tf.resource:
            rule = rules.rows.gather
        return rule

    def _computed(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """The outputs of an operator on given inputs, per rank. They are not recorded."""
        rule = self._rule(operator, inputs)
        if rule is not None:
            results = rule(rules.under(self._world, operator, self._strategy), inputs)
            return [list(shards) for shards in zip(*results, strict=True)]
        inputs = self._with_replaced(operator, inputs)
        kernels = self._kernels(operator)
        outputs = []
        for position, rank in enumerate(self._world.ranks):
            operation = kernels[position]([shards[position] for shards in inputs])
            self._set_shapes(operator, operation, rank)
            outputs.append(self._rescaled(operator, list(operation.outputs), rank))
        return outputs

    def _random(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        """The shards that a random operator draws. Ranks with the same region share a shard."""
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        mesh, drawn = self._world.mesh, {}
        with (
            tf.name_scope(operator.name),
            self._target.control_dependencies(self._emitted.before_on_all(operator)),
        ):
            for position, rank in enumerate(self._world.ranks):
                piece = mesh.piece(rank, layout.axes)
                if piece not in drawn:
                    operands = [shards[position] for shards in inputs]
                    drawn[piece] = self._draws.draw(operator, operands, layout, mesh, rank)
        return [drawn[mesh.piece(rank, layout.axes)] for rank in self._world.ranks]

    def _set_shapes(self, operator: Operator, operation: tf.Operation, rank: int) -> None:
        """Set the shapes of shards where TensorFlow does not infer them."""
        for number, tensor in enumerate(operation.outputs):
            shape = operator.outputs[number].shape
            if tensor.shape.rank != len(shape) or tensor.shape.is_fully_defined():
                continue
            layout = self._strategy.output_slot(TensorName(operator.name, number)).forward
            local = static_shape(piece_shape(layout, shape, self._world.mesh, rank))
            pairs = zip(tensor.shape.as_list(), local, strict=True)
            tensor.set_shape([known if inferred is None else None for inferred, known in pairs])

    def _rescaled(self, operator: Operator, outputs: list[tf.Tensor], rank: int) -> list[tf.Tensor]:
        """Scale the outputs of a kernel that divides by its local extent (Mean)."""
        derivation = self._strategy.derivations[operator.name]
        configuration = self._strategy.configurations[operator.name]
        scale = rescaling(derivation, configuration, self._world.mesh, rank)
        if scale == 1:
            return outputs
        return [output * tf.constant(float(scale), output.dtype) for output in outputs]

    def _kernels(self, operator: Operator) -> list[_Create]:
        """For each rank a function that creates an operator's kernel on its inputs; one for all
        where the kernel is the same."""
        if self._strategy.is_uneven(operator.name):
            return [self._kernel(operator, rank) for rank in self._world.ranks]
        return [self._kernel(operator, 0)] * len(self._world.ranks)

    def _kernel(self, operator: Operator, rank: int) -> _Create:
        """A function that creates an operator's kernel on the inputs of a rank."""
        if operator.type == "NoOp":
            return lambda _: tf.no_op(operator.name)
        attributes = tensorflow_attributes(self._script, operator, self._local_form(operator, rank))
        seed_operator(attributes, operator.script_name, self._seed)
        order_draws(self._script, attributes)
        dtypes = [tf.as_dtype(spec.dtype) for spec in operator.outputs]

        def create(inputs: Sequence[tf.Tensor]) -> tf.Operation:
            copied = copy_functions(self._script, self._target, attributes, self._seed)
            if operator.type == "PartitionedCall":
                return called_in_place(self._target, copied["f"].func.name, inputs, operator.name)
            return _create_op(
                self._target,
                operator.type,
                list(inputs),
                dtypes=dtypes,
                attrs=copied,
                name=operator.name,
            )

        return self._checks.kernel(operator, attributes, create)

    def _with_replaced(
        self, operator: Operator, inputs: list[list[tf.Tensor]]
    ) -> list[list[tf.Tensor]]:
        """Replace operands that describe the whole tensor by operands that describe the shard."""
        inputs = list(inputs)
        uneven = self._strategy.is_uneven(operator.name)
        of_ranks = [
            self._replaced_operands(operator, rank)
            for rank in (self._world.ranks if uneven else (0,))
        ]
        for number, value in of_ranks[0].items():
            if isinstance(value, tuple) and -1 in value:
                layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
                inputs[number] = [
                    local_operand(whole, value, layout, self._world.mesh)
                    for whole in inputs[number]
                ]
                continue
            dtype = inputs[number][0].dtype
            operands = [tf.constant(values[number], dtype) for values in of_ranks]
            inputs[number] = operands if uneven else operands * len(self._world.ranks)
        return inputs

    def _replaced_operands(self, operator: Operator, rank: int) -> dict[int, object]:
        local = self._local_form(operator, rank)
        return {number: value for number, value in local.items() if isinstance(number, int)}

    def _local_form(self, operator: Operator, rank: int) -> Mapping[int | str, object]:
        """The operands and attributes of the kernel on a shard that differ from the script's."""
        return local_form(
            self._strategy.derivations[operator.name],
            self._strategy.configurations[operator.name],
            self._world.mesh,
            operator.input_specs,
            operator.attributes,
            rank,
        )


def reads_variable(operator: Operator) -> bool:
    """Whether an operator reads a variable at any time of the run."""
    read = operator.type == "ReadVariableOp" and not operator.control_inputs
    return operator.is_variable or read
