"""Emission: one operator after the other, on every rank of a world, at local shapes."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry  # what attributes an operator has

from tensoropt.errors import GraphError
from tensoropt.execution import rules
from tensoropt.execution.borrowing import Loan, borrow, may_write, read_pieces, write
from tensoropt.execution.draws import ProgramDraws
from tensoropt.execution.edge import PlanSteps, moved_slices, reshard_edge
from tensoropt.execution.functions import Functions, seed_operator
from tensoropt.execution.rules.random import TYPES as RANDOM_TYPES
from tensoropt.execution.slices import Numbers, SlicesEdge
from tensoropt.execution.variables import VariableStore
from tensoropt.execution.world import World
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.configuration import rescaling
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.sparse import known_shape, looks_up_rows
from tensoropt.parallel.strategy import Strategy

__all__ = ["Emitter"]

_DROPPED_ATTRIBUTES = frozenset({"_class", "_output_shapes"})
_LAYOUT_FREE = frozenset({"VarIsInitializedOp", "IsVariableInitialized", "DestroyResourceOp"})


# What acts on the world outside, and returns nothing: the first rank does it for all.
_ONCE = frozenset(
    {"MergeV2Checkpoints", "PrintV2", "Save", "SaveSlices", "SaveV2", "WriteFile"}
    | {"FlushSummaryWriter", "WriteSummary", "WriteScalarSummary", "WriteHistogramSummary"}
)


_LARGE = 1 << 12  # elements of a constant that no device shall hold whole


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
        self._unset = unset
        self._differentiated = differentiated_inputs(graph)
        self._sparse = sparse_tensors(graph)
        self._lookups = Counter(op.inputs[0] for op in graph if looks_up_rows(op, 0))
        self._now_sparse: frozenset[TensorName] = frozenset()
        self._differentiated_by = {op.gradient.x.operator for op in graph if op.gradient}
        self._cut: dict[tuple[str, tuple[tuple[int, int], ...]], tf.Tensor] = {}
        self._outputs: dict[str, list[list[tf.Tensor]]] = {}
        self._operations: dict[str, list[tf.Operation]] = {}
        self._edges: dict[tuple[TensorName, Slot, bool, str], list[tf.Tensor]] = {}
        self._gradients: dict[tuple[int, TensorName], list[Any]] = {}
        self.placeholders: dict[str, list[tf.Tensor]] = {}
        self.draws = ProgramDraws(graph, seed)

    def emit(self) -> None:
        """Emit every operator of the graph. The target graph must be the default."""
        for operator in self._graph:
            if operator.is_variable:
                handles = self._variables.get(self._script, operator, self._strategy, self._world)
                self._record(operator, [[handle] for handle in handles])
            elif operator.is_placeholder:
                self._record(operator, self._placeholder(operator))
            elif operator.gradient is not None:
                self._record(operator, [[piece] for piece in self._gradient(operator)])
            elif operator.is_constant:
                if not self._is_cut_where_read(operator):
                    self._record(operator, [[piece] for piece in self._constant(operator)])
            else:
                self._emit_operator(operator)

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, one per rank."""
        if name not in self._operations:
            self.pieces(TensorName(name, 0))
        return self._operations[name]

    def pieces(self, tensor: TensorName) -> list[tf.Tensor]:
        """A tensor's pieces where it is made, one per rank."""
        if tensor.operator not in self._outputs:
            operator = self._graph[tensor.operator]
            with self._target.control_dependencies(None):
                self._record(operator, [[piece] for piece in self._constant(operator)])
        return [outputs[tensor.index] for outputs in self._outputs[tensor.operator]]

    def logical(self, tensor: TensorName, after: Sequence[tf.Operation] = ()) -> tf.Tensor:
        """The whole, true tensor, as this process's first rank holds it after resharding.

        Args:
            tensor: what is fetched.
            after: what else is. A variable that is fetched itself has its value after these.
        """
        source = self._strategy.output_slot(tensor)
        spec = self._graph.spec(tensor)
        pieces = self.pieces(tensor)
        if self.is_variable(tensor):
            variable = self._graph[tensor.operator]
            with self._target.control_dependencies(after):
                if variable.type == "ReadVariableOp":
                    pieces = read_pieces(self.pieces(variable.inputs[0]), pieces[0].dtype)
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

    def _record(self, operator: Operator, outputs: list[list[tf.Tensor]]) -> None:
        self._outputs[operator.name] = outputs
        if outputs and outputs[0]:
            self._operations[operator.name] = [tensors[0].op for tensors in outputs]

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

    def _constant(self, operator: Operator) -> list[tf.Tensor]:
        value = operator.outputs[0].value
        if not operator.control_inputs and operator.name not in self._differentiated_by:
            return [tf.constant(value, name=operator.name)] * len(self._world.ranks)
        pieces = []
        for position in range(len(self._world.ranks)):
            with self._target.control_dependencies(self._before(operator, position)):
                pieces.append(tf.constant(value, name=operator.name))
        return pieces

    def _before(self, operator: Operator, position: int) -> list[tf.Operation]:
        """What runs before an operator on one rank, besides what makes its inputs."""
        return [
            self._operations[name][position]
            for name in operator.control_inputs
            if name in self._operations
        ]

    def _emit_operator(self, operator: Operator) -> None:
        if self._whole_variables(operator):
            self._emit_on_loan(operator)
            return
        inputs = [self._input(operator, number) for number in range(len(operator.inputs))]
        local = self._local_form(operator)
        for number, value in local.items():
            if isinstance(number, int):
                own = tf.constant(value, inputs[number][0].dtype)
                inputs[number] = [own] * len(self._world.ranks)
        if operator.type in RANDOM_TYPES:
            self._record(operator, [[piece] for piece in self._random(operator, inputs)])
            return
        rule = rules.lookup(operator, self._strategy)
        if inputs and looks_up_rows(operator, 0) and inputs[0][0].dtype == tf.resource:
            rule = rules.rows.gather
        if rule is not None:
            configuration = self._strategy.configurations[operator.name]
            derivation = self._strategy.derivations[operator.name]
            before = [
                operation
                for position in range(len(self._world.ranks))
                for operation in self._before(operator, position)
            ]
            with tf.name_scope(operator.name), self._target.control_dependencies(before):
                made = rule(self._world, operator, derivation, configuration, inputs)
            self._record(operator, [list(pieces) for pieces in zip(*made, strict=True)])
            return
        inputs = rules.local_operands(self._world, operator, self._strategy, inputs)
        outputs, operations = [], []
        for position, rank in enumerate(self._world.ranks):
            with self._target.control_dependencies(self._before(operator, position)):
                if operator.type in _ONCE and rank != 0:
                    # It waits for its inputs, too: ranks move them together.
                    operation = tf.group(*(pieces[position] for pieces in inputs))
                else:
                    operation = self._create(operator, [pieces[position] for pieces in inputs])
            self._say_shapes(operator, operation)
            outputs.append(self._rescaled(operator, list(operation.outputs)))
            operations.append(operation)
        self._outputs[operator.name] = outputs
        self._operations[operator.name] = operations

    def _random(self, operator: Operator, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        layout = self._strategy.output_slot(TensorName(operator.name, 0)).forward
        pieces = []
        for position, rank in enumerate(self._world.ranks):
            own = [given[position] for given in inputs]
            before = self._before(operator, position)
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
        attributes = self._attributes(operator)
        for key, value in self._local_form(operator).items():
            if isinstance(key, str):
                attributes[key] = _attribute(value, attributes[key])
        seed_operator(attributes, operator.name, self._seed)
        attributes = self._functions.copy_into(self._target, attributes, self._seed)
        return self._target.create_op(
            operator.type,
            list(inputs),
            dtypes=[tf.as_dtype(spec.dtype) for spec in operator.outputs],
            attrs=attributes,
            name=operator.name,
        )

    def _attributes(self, operator: Operator) -> dict[str, tf.compat.v1.AttrValue]:
        if operator.synthetic:
            return _plain_attributes(operator)
        original = self._script.get_operation_by_name(operator.name)
        attributes = original.node_def.attr.items()
        return {name: value for name, value in attributes if name not in _DROPPED_ATTRIBUTES}

    def _input(self, operator: Operator, number: int) -> list[tf.Tensor]:
        tensor = operator.inputs[number]
        spec = operator.input_specs[number]
        if self._is_cut_where_read(self._graph[tensor.operator]):
            return self._cut_constant(operator, number)
        pieces = self.pieces(tensor)
        if number in operator.mutates or spec.dtype == "resource":
            return pieces
        source = self._strategy.output_slot(tensor)
        target = self._strategy.input_slot(operator, number)
        differentiated = number in self._differentiated.get(operator.name, ())
        looked_up = looks_up_rows(operator, number)
        # Lookups share a table that is moved for them; else each has its slices in order.
        stays = source.forward == target.forward
        alone = looked_up and (stays or self._lookups[tensor] == 1)
        key = (tensor, target, differentiated, operator.name if alone else str(looked_up))
        if key not in self._edges:
            numbers = None
            if alone:
                pieces = (self._handles(tensor) if stays else None) or pieces
                layout = self._strategy.input_slot(operator, 1).forward
                numbers = Numbers(operator.input_specs[1].shape, layout)
            self._edges[key] = reshard_edge(
                self._world,
                pieces,
                spec.shape,
                source,
                target,
                self._plan_steps,
                f"{tensor.operator}/reshard",
                differentiated,
                lambda: tensor in self._now_sparse,
                looked_up,
                numbers,
            )
        return self._edges[key]

    def _handles(self, tensor: TensorName) -> list[tf.Tensor] | None:
        """The variables whose rows a script's gather looks up without reading all of them.

        A read would copy them: TensorFlow reads by copy what is also updated by row.
        """
        read = self._graph[tensor.operator]
        if not (read.synthetic and read.type == "ReadVariableOp"):
            return None
        return self.pieces(read.inputs[0])

    def _is_cut_where_read(self, operator: Operator) -> bool:
        """Whether a constant is large, and made only in the pieces that are read of it."""
        if not operator.is_constant or operator.outputs[0].elements <= _LARGE:
            return False
        return not operator.control_inputs and operator.name not in self._differentiated_by

    def _cut_constant(self, operator: Operator, number: int) -> list[tf.Tensor]:
        tensor = operator.inputs[number]
        layout = self._strategy.input_slot(operator, number).forward
        value = self._graph.spec(tensor).value
        assert value is not None, "a constant has a value"
        pieces = []
        for rank in self._world.ranks:
            region = layout.region(value.shape, self._world.mesh, rank)
            key = (tensor.operator, tuple((part.start, part.stop) for part in region))
            if key not in self._cut:
                with self._target.control_dependencies(None):
                    self._cut[key] = tf.constant(value[region], name=tensor.operator)
            pieces.append(self._cut[key])
        return pieces

    def _local_form(self, operator: Operator) -> Mapping[int | str, object]:
        """The operands and attributes that the kernel on a piece is given instead."""
        return local_form(
            self._strategy.derivations[operator.name],
            self._strategy.configurations[operator.name],
            self._world.mesh,
            operator.input_specs,
            operator.attributes,
        )

    def _whole_variables(self, operator: Operator) -> list[int]:
        """The inputs that are variables stored in pieces that the operator cannot work on."""
        if operator.type in _LAYOUT_FREE:
            return []
        return [
            number
            for number in operator.mutates
            if self._strategy.output_slot(operator.inputs[number]).forward.dims
            != self._strategy.input_slot(operator, number).forward.dims
        ]

    def _emit_on_loan(self, operator: Operator) -> None:
        """Run an operator on whole copies of variables, then cut them into the pieces again."""
        inputs = [self._input(operator, number) for number in range(len(operator.inputs))]
        loans = {n: self._loan(operator, n) for n in self._whole_variables(operator)}
        ranks = range(len(self._world.ranks))
        operations = []
        for position in ranks:
            ready = [loan.filled[position] for loan in loans.values()]
            before = self._before(operator, position) + [op for op in ready if op is not None]
            given = [
                (loans[n].handles if n in loans else pieces)[position]
                for n, pieces in enumerate(inputs)
            ]
            with self._target.control_dependencies(before):
                operations.append(self._create(operator, given))
        outputs = [list(operation.outputs) for operation in operations]
        if may_write(self._functions, self._script.get_operation_by_name(operator.name)):
            ends = list(operations)
            for number, loan in loans.items():
                ends = self._give_back(operator, number, loan.values(ends))
            for position in ranks:
                with self._target.control_dependencies([ends[position]]):
                    outputs[position] = [tf.identity(tensor) for tensor in outputs[position]]
            operations = ends
        self._outputs[operator.name] = outputs
        self._operations[operator.name] = operations

    def _loan(self, operator: Operator, number: int) -> Loan:
        tensor = operator.inputs[number]
        pieces = self.pieces(tensor)
        shape = operator.input_specs[number].shape
        dtype = pieces[0].dtype
        if dtype == tf.resource:
            dtype = tf.as_dtype(pieces[0].op.get_attr("dtype"))
        if tensor.operator in self._unset:
            return borrow(shape, dtype, len(pieces))
        before = [op for position in range(len(pieces)) for op in self._before(operator, position)]
        with self._target.control_dependencies(before):
            values = read_pieces(pieces, dtype)
        stored = self._strategy.output_slot(tensor).forward
        whole = Layout.replicated(len(shape))
        steps = self._plan_steps(shape, dtype.base_dtype.name, stored, whole)
        label = f"{operator.name}/borrow"
        return borrow(shape, dtype, self._world.reshard(values, steps, label))

    def _give_back(
        self, operator: Operator, number: int, values: list[tf.Tensor]
    ) -> list[tf.Operation]:
        tensor = operator.inputs[number]
        shape = operator.input_specs[number].shape
        stored = self._strategy.output_slot(tensor).forward
        whole = Layout.replicated(len(shape))
        steps = self._plan_steps(shape, values[0].dtype.name, whole, stored)
        pieces = self._world.reshard(values, steps, f"{operator.name}/return")
        return [write(v, p) for v, p in zip(self.pieces(tensor), pieces, strict=True)]

    def _gradient(self, operator: Operator) -> list[tf.Tensor]:
        tag = operator.gradient
        assert tag is not None
        if (tag.call, tag.x) not in self._gradients:
            self._differentiate(tag)
        gradients = self._gradients[(tag.call, tag.x)]
        dtype = operator.outputs[0].dtype
        return [_part(gradient, tag.part, dtype, operator.name) for gradient in gradients]

    def _differentiate(self, tag: GradientTag) -> None:
        """Differentiate the emitted graph by all x of one call that this program needs."""
        xs = list(
            dict.fromkeys(
                other.gradient.x
                for other in self._graph
                if other.gradient is not None
                and other.gradient.call == tag.call
                and other.gradient.x.operator in self._outputs
            )
        )
        ys = _flat(self.pieces(y) for y in tag.ys)
        upstream: list[tf.Tensor] = []
        for y, grad_y in zip(tag.ys, tag.grad_ys, strict=True):
            upstream += self._upstream(y, grad_y)
        after = _flat([self.operations(name) for name in tag.after])
        self._now_sparse = self._sparse[tag.call]
        with self._target.control_dependencies(after):
            gradients = tf.compat.v1.gradients(
                ys,
                _flat(self.pieces(x) for x in xs),
                grad_ys=upstream,
                stop_gradients=_flat(self.pieces(t) for t in tag.stop_gradients),
                gate_gradients=True,
                name=f"gradients_{tag.call}",
            )
        width = len(self._world.ranks)
        for number, x in enumerate(xs):
            found = gradients[number * width : (number + 1) * width]
            if x in self._now_sparse:
                found = self._whole_slices(x, found)
            self._gradients[(tag.call, x)] = found

    def _whole_slices(self, x: TensorName, gradients: list[Any]) -> list[Any]:
        """A sparse gradient as its slot has it: all slices on every rank, columns as x's."""
        made = self._strategy.output_slot(x).gradient
        target = Layout(((), *made.dims[1:]))
        shape, label = self._graph.spec(x).shape, f"{x.operator}/slices"
        if all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            if not made.partial:
                return gradients
            move = functools.partial(moved_slices, self._world)
            edge = SlicesEdge(self._world, shape, made, target, self._plan_steps, label, move)
            return edge.collected(gradients)
        if any(gradient is None for gradient in gradients):
            return gradients
        # A rule may give all rows where the script's operator gives some.
        steps = self._plan_steps(known_shape(shape), gradients[0].dtype.name, made, target)
        wholes = self._world.reshard(gradients, steps, label)
        return [tf.IndexedSlices(whole, tf.range(tf.shape(whole)[0])) for whole in wholes]

    def _upstream(self, y: TensorName, grad_y: TensorName | None) -> list[tf.Tensor]:
        """The gradient arriving at y, in its producer's gradient layout: ones, or the script's."""
        pieces = self.pieces(y)
        target = self._strategy.output_slot(y).gradient
        if grad_y is None:
            upstream, source = [tf.ones_like(piece) for piece in pieces], Layout(target.dims)
        else:
            upstream, source = self.pieces(grad_y), self._strategy.output_slot(grad_y).forward
        shape, dtype = self._graph.spec(y).shape, pieces[0].dtype.base_dtype.name
        steps = self._plan_steps(shape, dtype, source, target)
        return self._world.reshard(upstream, steps, f"{y.operator}/upstream")


def _flat(groups: Iterable[list[tf.Tensor]]) -> list[tf.Tensor]:
    return [tensor for group in groups for tensor in group]


def _part(gradient: Any, part: str, dtype: str, name: str) -> tf.Tensor:
    if gradient is None:
        raise GraphError(
            f"a gradient that TensorFlow found in the script's graph exists on every rank. Got "
            f"none for {name!r}."
        )
    if part == "dense":
        return tf.convert_to_tensor(gradient)
    return gradient.values if part == "values" else tf.cast(gradient.indices, dtype)


def _plain_attributes(operator: Operator) -> dict[str, tf.compat.v1.AttrValue]:
    """TensorFlow's attributes of an operator that is not in the script."""
    attributes = {}
    for definition in op_def_registry.get(operator.type).attr:
        if definition.name in operator.attributes:
            value = operator.attributes[definition.name]
            attribute = tf.compat.v1.AttrValue()
            if definition.type == "type":
                attribute.type = tf.as_dtype(value).as_datatype_enum
            elif definition.type == "bool":
                attribute.b = bool(value)
            else:
                attribute.i = int(str(value))
            attributes[definition.name] = attribute
    return attributes


def _attribute(value: object, original: tf.compat.v1.AttrValue) -> tf.compat.v1.AttrValue:
    """A plain value as TensorFlow's attribute, of the kind that the script's operator has."""
    attribute = tf.compat.v1.AttrValue()
    if original.WhichOneof("value") == "shape":
        attribute.shape.CopyFrom(tf.TensorShape(value).as_proto())
    elif isinstance(value, bool):
        attribute.b = value
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, (list, tuple)):
        attribute.list.i.extend(value)
    else:
        raise GraphError(
            f"a local attribute is a shape, an integer or a list of them. Got {value!r}."
        )
    return attribute
