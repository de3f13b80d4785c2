"""The emission of a stage: operator by operator, on every rank of a world, at local shapes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tensoropt.execution import rules
from tensoropt.execution.edges.checks import Checks
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.edges.inputs import Inputs
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.edges.weight_sums import WeightSums
from tensoropt.execution.edges.whole_variables import WholeVariables, may_write, read_shards
from tensoropt.execution.gradients.matrix_products import GRADIENTS
from tensoropt.execution.lowering.attributes import name_state, tensorflow_attributes
from tensoropt.execution.lowering.draws import ProgramDraws
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
from tensoropt.execution.rules.random import TYPES as RANDOM_TYPES
from tensoropt.execution.world.shard_table import ShardTable
from tensoropt.execution.world.variables import VariableStore
from tensoropt.execution.world.world import World
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.buckets import BUCKET_SIZES, BucketSizes
from tensoropt.parallel.configuration import rescaling
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.local_form import local_form, piece_shape
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy

__all__ = ["Emitter", "reads_variable"]

# What acts on the world outside, and returns nothing: the first rank does it for all.
_ONCE = frozenset(
    {"MergeV2Checkpoints", "PrintV2", "Save", "SaveSlices", "SaveV2", "WriteFile"}
    | {"FlushSummaryWriter", "WriteSummary", "WriteScalarSummary", "WriteHistogramSummary"}
)


_create_op = inspect.unwrap(tf.Graph.create_op)
"""Without its check for an argument that is gone, which takes as long as all the rest."""


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
        buckets: which sums of weights' gradients travel together.
        checked: operators that fail on all ranks alike, see `Checks`.
        draws, checks: of the program, where this is a part of one.
        reads: gives what the gradients of the script's operators read; called only where something
            is computed again.
        sizes: at which reshardings of tensors with open dimensions are planned, see `plans_at`.

    Attributes:
        graph, strategy: see above.
        placeholders: one on each rank, by operator.
        draws: its random operators.
        checks: what fails on all ranks alike.
        always: operations that are run whatever is fetched.
        is_a_part: whether other processes emit other parts of the program.
    """

    always: Sequence[tf.Operation] = ()
    is_a_part = False

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
        buckets: BucketSizes = BUCKET_SIZES,
        checked: frozenset[str] = frozenset(),
        draws: ProgramDraws | None = None,
        checks: Checks | None = None,
        reads: Callable[[], BackwardReads] = BackwardReads,
        sizes: Mapping[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> None:
        self._script = script
        self.graph = graph
        self.strategy = self._strategy = strategy
        self._world = world
        self._variables = variables
        self._seed = seed
        self._target = target
        self._emitted = ShardTable(graph, world, target)
        self._plan_steps = plan_steps = plans_at(plan_steps, sizes or {}, world.mesh)
        context = ProgramContext(
            graph, strategy, world, self._emitted, plan_steps, target, sizes or {}
        )
        sums = WeightSums(world, buckets, differentiates_gradients(graph))
        self._gradients = RankGradients(context, sums, lambda: self._recomputation.next_call())
        self._inputs = Inputs(context, self._gradients.is_now_sparse, sums)
        self._recomputation = Recomputation(context, self._inputs, reads, self._computed)
        self._whole_variables = WholeVariables(strategy, world, self._emitted, plan_steps, unset)
        self.placeholders: dict[str, list[tf.Tensor]] = {}
        self.draws = draws or ProgramDraws(graph, seed)
        self.checks = checks or Checks(script, checked, world, plan_steps, target)

    def emit(self) -> None:
        """Emit every operator of the graph. The target graph must be the default."""
        operators = list(self.graph)
        first = next((n for n, each in enumerate(operators) if each.mutates), len(operators))
        for operator in operators[:first]:
            self.emit_one(operator)
        with self._target.control_dependencies(self.checks.close()):
            for operator in operators[first:]:
                self.emit_one(operator)

    def receive(self, operator: Operator, shards: list[tf.Tensor]) -> None:
        """Record what another stage has made."""
        self._emitted.record(operator, [[shard] for shard in shards])

    def note_sent(self, name: str, operations: Sequence[tf.Operation]) -> None:
        """Note what sends on what an operator makes: gradients that are made after it wait."""
        self._emitted.sent.setdefault(name, []).extend(operations)

    def made(self, tensor: TensorName) -> list[tf.Tensor]:
        """The shards of a tensor where it is made, one per rank."""
        return self._emitted.shards(tensor)

    def emit_one(self, operator: Operator) -> None:
        """Emit an operator, after all that it reads."""
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

    def knows(self, name: str) -> bool:
        """Whether an operator can be run or fetched."""
        return name in self.graph

    def fed(self) -> dict[str, FedShards]:
        """How what is fed gets to the ranks, by operator."""
        return fed_shards(self.placeholders, self.graph, self._strategy, self._world)

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
        spec = self.graph.spec(tensor)
        shards = self._emitted.shards(tensor)
        if self.is_variable(tensor):
            variable = self.graph[tensor.operator]
            with self._target.control_dependencies(after):
                if variable.type == "ReadVariableOp":
                    shards = read_shards(self._emitted.shards(variable.inputs[0]), shards[0].dtype)
                shards = [tf.identity(shard) for shard in shards]
        shards = [tf.identity(shard) for shard in shards]
        target = Layout.replicated(len(source.forward.dims))
        steps = self._plan_steps(spec.shape, shards[0].dtype.name, source.forward, target)
        label = f"{tensor.operator}/fetch"
        return self._world.reshard(shards, steps, label)[0] if steps else shards[0]

    def is_variable(self, tensor: TensorName) -> bool:
        """Whether a fetched tensor is a variable's value, when that is left open."""
        return reads_variable(self.graph[tensor.operator])

    def owner(self, tensor: TensorName) -> int | None:
        """The rank of the job that has a tensor, where that is not each; else None."""
        del tensor
        return None

    def _placeholder(self, operator: Operator) -> list[list[tf.Tensor]]:
        spec = operator.outputs[0]
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        shape = layout.local_shape(spec.shape, self._world.mesh)
        shards = [
            tf.compat.v1.placeholder(spec.dtype, static_shape(shape), name=operator.name)
            for _ in self._world.ranks
        ]
        self.placeholders[operator.name] = shards
        return [[shard] for shard in shards]

    def _emit_operator(self, operator: Operator) -> None:
        if operator.type in SHAPE_TYPES:
            self._emit_shape(operator)
            return
        inputs = self._inputs.of(operator)
        if self._whole_variables.gathered(operator):
            original = self._script.get_operation_by_name(operator.name)
            writes = may_write(self._script, original)
            self._whole_variables.emit(operator, inputs, self._kernel(operator), writes)
            return
        if operator.type in RANDOM_TYPES:
            self._emitted.record(operator, [[shard] for shard in self._random(operator, inputs)])
            return
        inputs = self._with_replaced(operator, inputs)
        recomputes = self._recomputation.concerns(operator)
        if self._rule(operator, inputs) is not None:
            before = self._emitted.before_on_all(operator)
            made = self._recomputation.lowered if recomputes else self._computed
            with tf.name_scope(operator.name), self._target.control_dependencies(before):
                outputs = made(operator, inputs)
            self._emitted.record(operator, outputs)
            return
        inputs = rules.local_operands(self._world, operator, self._strategy, inputs)
        create = self._kernel(operator)
        outputs, operations = [], []
        for position, rank in enumerate(self._world.ranks):
            own = [shards[position] for shards in inputs]
            with contextlib.ExitStack() as stack:
                stack.enter_context(
                    self._target.control_dependencies(self._emitted.before(operator, position))
                )
                if operator.type in _ONCE and rank != 0:
                    # It waits for its inputs, too: ranks move them together.
                    operation = tf.group(*own)
                else:
                    if recomputes:
                        replaced = frozenset(self._replaced_operands(operator))
                        stack.enter_context(
                            self._recomputation.gradient(operator, position, replaced)
                        )
                    operation = create(own)
                    name_state(operation, operator.name, rank)
            self._set_shapes(operator, operation)
            outputs.append(self._rescaled(operator, list(operation.outputs)))
            operations.append(operation)
        self._emitted.record(operator, outputs, operations)

    def _emit_shape(self, operator: Operator) -> None:
        """What a device says of whole tensors' shapes, which it need not have whole."""
        layouts = [self._strategy.output_slot(tensor).forward for tensor in operator.inputs]
        shards = [self._emitted.shards(tensor) for tensor in operator.inputs]
        outputs = []
        for position in range(len(self._world.ranks)):
            own = [of_ranks[position] for of_ranks in shards]
            with (
                tf.name_scope(operator.name),
                self._target.control_dependencies(self._emitted.before(operator, position)),
            ):
                outputs.append(whole_shapes(operator, own, layouts, self._world.mesh))
        self._emitted.record(operator, outputs)

    def _rule(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> rules.Rule | None:
        """The custom lowering of an operator under its configuration, if its kernel does not do."""
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
            return [list(shards) for shards in zip(*made, strict=True)]
        inputs = self._with_replaced(operator, inputs)
        create = self._kernel(operator)
        outputs = []
        for position in range(len(self._world.ranks)):
            operation = create([shards[position] for shards in inputs])
            self._set_shapes(operator, operation)
            outputs.append(self._rescaled(operator, list(operation.outputs)))
        return outputs

    def _random(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        """The shards of what a random operator draws; ranks with the same region share one."""
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        mesh, drawn = self._world.mesh, {}
        with (
            tf.name_scope(operator.name),
            self._target.control_dependencies(self._emitted.before_on_all(operator)),
        ):
            for position, rank in enumerate(self._world.ranks):
                place = mesh.piece(rank, layout.axes)
                if place not in drawn:
                    own = [given[position] for given in inputs]
                    drawn[place] = self.draws.draw(operator, own, layout, mesh, rank)
        return [drawn[mesh.piece(rank, layout.axes)] for rank in self._world.ranks]

    def _set_shapes(self, operator: Operator, operation: tf.Operation) -> None:
        """Set the shapes of shards where TensorFlow does not infer them."""
        for number, tensor in enumerate(operation.outputs):
            shape = operator.outputs[number].shape
            if tensor.shape.rank != len(shape) or tensor.shape.is_fully_defined():
                continue
            layout = self._strategy.output_slot(TensorName(operator.name, number)).forward
            local = static_shape(piece_shape(layout, shape, self._world.mesh))
            pairs = zip(tensor.shape.as_list(), local, strict=True)
            tensor.set_shape([own if inferred is None else None for inferred, own in pairs])

    def _rescaled(self, operator: Operator, outputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """A kernel that divides by the extent it sees (Mean) gives a partial sum once scaled."""
        derivation = self._strategy.derivations[operator.name]
        configuration = self._strategy.configurations[operator.name]
        scale = rescaling(derivation, configuration, self._world.mesh)
        if scale == 1:
            return outputs
        return [output * tf.constant(float(scale), output.dtype) for output in outputs]

    def _kernel(self, operator: Operator) -> Callable[[Sequence[tf.Tensor]], tf.Operation]:
        """What creates an operator's kernel on a rank's inputs; it is the same on every rank."""
        if operator.type == "NoOp":
            return lambda _: tf.no_op(operator.name)
        attributes = tensorflow_attributes(self._script, operator, self._local_form(operator))
        seed_operator(attributes, operator.script_name, self._seed)
        order_draws(self._script, attributes)
        dtypes = [tf.as_dtype(spec.dtype) for spec in operator.outputs]

        def create(inputs: Sequence[tf.Tensor]) -> tf.Operation:
            own = copy_functions(self._script, self._target, attributes, self._seed)
            if operator.type == "PartitionedCall":
                return called_in_place(self._target, own["f"].func.name, inputs, operator.name)
            return _create_op(
                self._target,
                operator.type,
                list(inputs),
                dtypes=dtypes,
                attrs=own,
                name=operator.name,
            )

        return self.checks.kernel(operator, attributes, create)

    def _with_replaced(
        self, operator: Operator, inputs: list[list[tf.Tensor]]
    ) -> list[list[tf.Tensor]]:
        """The inputs, with those replaced that describe the whole tensor."""
        inputs = list(inputs)
        for number, value in self._replaced_operands(operator).items():
            if isinstance(value, tuple) and -1 in value:
                layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
                inputs[number] = [
                    local_operand(whole, value, layout, self._world.mesh)
                    for whole in inputs[number]
                ]
                continue
            own = tf.constant(value, inputs[number][0].dtype)
            inputs[number] = [own] * len(self._world.ranks)
        return inputs

    def _replaced_operands(self, operator: Operator) -> dict[int, object]:
        local = self._local_form(operator)
        return {number: value for number, value in local.items() if isinstance(number, int)}

    def _local_form(self, operator: Operator) -> Mapping[int | str, object]:
        """The operands and attributes of the kernel on a shard that differ from the script's."""
        return local_form(
            self._strategy.derivations[operator.name],
            self._strategy.configurations[operator.name],
            self._world.mesh,
            operator.input_specs,
            operator.attributes,
        )


def reads_variable(operator: Operator) -> bool:
    """Whether an operator's output is a variable's value, when that is left open."""
    read = operator.type == "ReadVariableOp" and not operator.control_inputs
    return operator.is_variable or read
