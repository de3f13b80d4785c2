"""Operators that need a whole variable, although it is stored in shards.

The value is gathered into a temporary variable on each rank, the operator works on that variable,
and a changed value is scattered back to the shards. Then the temporary variable is freed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.world.shard_table import ShardTable
from tensoropt.execution.world.variable_access import free, read, read_shards, write
from tensoropt.execution.world.world import World
from tensoropt.graph.from_tensorflow import called_functions, function_closure
from tensoropt.graph.operator import Operator
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import operator_type

__all__ = ["WholeVariables", "may_write"]

# Types of operators that change a variable; of the types Resource... only gathers do not.
_WRITES = re.compile(r"^(Assign|Destroy|Resource(?!Gather)|Scatter|.*Apply)")
_numbers = itertools.count()


class WholeVariables:
    """Emits operators on whole copies of variables, and scatters the copies back to the shards.

    Args:
        strategy: a configuration for each operator.
        world: the ranks emitted here.
        emitted: the operators that are emitted so far.
        plan_steps: plans a resharding.
        unset: variables that have no value before a run of this program.
    """

    def __init__(
        self,
        strategy: Strategy,
        world: World,
        emitted: ShardTable,
        plan_steps: PlanSteps,
        unset: frozenset[str],
    ) -> None:
        self._strategy = strategy
        self._world = world
        self._emitted = emitted
        self._plan_steps = plan_steps
        self._unset = unset

    def gathered(self, operator: Operator) -> list[int]:
        """The numbers of inputs that are stored in shards and that the operator needs whole."""
        if operator_type(operator.type).any_layout:
            return []
        return [
            number
            for number in operator.mutates
            if self._strategy.output_slot(operator.inputs[number]).forward.dims
            != self._strategy.input_slot(operator, number).forward.dims
        ]

    def emit(
        self,
        operator: Operator,
        inputs: Sequence[list[tf.Tensor]],
        create: Callable[[Sequence[tf.Tensor]], tf.Operation],
        writes: bool,
    ) -> None:
        """Emit an operator on whole copies of variables, and scatter changed copies back.

        Args:
            operator: an operator that needs some variables whole.
            inputs: the shards of each input; those of a needed variable in its stored layout.
            create: makes the operation on one rank's inputs.
            writes: whether the operator may change the variables.
        """
        copies = {number: self._gather(operator, number) for number in self.gathered(operator)}
        ranks = range(len(self._world.ranks))
        operations = []
        for position in ranks:
            ready = [copy.filled[position] for copy in copies.values()]
            before = self._emitted.before(operator, position)
            before += [operation for operation in ready if operation is not None]
            local_inputs = [
                (copies[n].handles if n in copies else shards)[position]
                for n, shards in enumerate(inputs)
            ]
            with tf.control_dependencies(before):
                operations.append(create(local_inputs))
        ends = operations
        for number, copy in copies.items() if writes else ():
            ends = self._scatter(operator, number, copy.values(ends))
        outputs, frees = [], []
        for position, operation in enumerate(operations):
            own = _after(
                ends[position], operation.outputs
            )  # a reference is read before it is freed
            with tf.control_dependencies([ends[position], *(tensor.op for tensor in own)]):
                freed = tf.group(*(free(copy.handles[position]) for copy in copies.values()))
            frees.append(freed)
            outputs.append(_after(freed, own))
        self._emitted.record(operator, outputs, frees)

    def _gather(self, operator: Operator, number: int) -> _WholeCopy:
        tensor = operator.inputs[number]
        shards = self._emitted.shards(tensor)
        shape = operator.input_specs[number].shape
        dtype = shards[0].dtype
        if dtype == tf.resource:
            dtype = tf.as_dtype(shards[0].op.get_attr("dtype"))
        if tensor.operator in self._unset:
            return _whole_copy(shape, dtype, len(shards))
        with tf.control_dependencies(self._emitted.before_on_all(operator)):
            values = read_shards(shards, dtype)
        stored = self._strategy.output_slot(tensor).forward
        replicated = Layout.replicated(len(shape))
        steps = self._plan_steps(shape, dtype.base_dtype.name, stored, replicated)
        label = f"{operator.name}/gather"
        return _whole_copy(shape, dtype, self._world.reshard(values, steps, label))

    def _scatter(
        self, operator: Operator, number: int, values: list[tf.Tensor]
    ) -> list[tf.Operation]:
        tensor = operator.inputs[number]
        shape = operator.input_specs[number].shape
        stored = self._strategy.output_slot(tensor).forward
        replicated = Layout.replicated(len(shape))
        steps = self._plan_steps(shape, values[0].dtype.name, replicated, stored)
        shards = self._world.reshard(values, steps, f"{operator.name}/scatter")
        return [write(v, p) for v, p in zip(self._emitted.shards(tensor), shards, strict=True)]


def may_write(script: tf.Graph, operation: tf.Operation) -> bool:
    """Whether an operator, or a function that it calls, may change a variable.

    An operator that calls no function may, unless its type only reads variables.
    """
    if operator_type(operation.type).reads_variable:
        return False
    called = called_functions(operation.node_def.attr)
    if not called:
        return True
    bodies = function_closure(script, called).values()
    return any(_WRITES.match(node.op) for body in bodies for node in body.node_def)


def _after(operation: tf.Operation, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the values of tensors once an operation has ended."""
    with tf.control_dependencies([operation]):
        return [tf.identity(tensor) for tensor in tensors]


@dataclass(frozen=True, slots=True, eq=False)
class _WholeCopy:
    """The whole copy of a variable on every rank emitted here.

    Attributes:
        handles: the handles of the temporary variables, which the operator reads and changes.
        filled: per rank the operation that fills the temporary variable; None if it has no value.
    """

    handles: list[tf.Tensor]
    filled: list[tf.Operation | None]

    def values(self, after: Sequence[tf.Operation]) -> list[tf.Tensor]:
        """Read the whole value on each rank, after the rank's operation in `after`."""
        values = []
        for handle, operation in zip(self.handles, after, strict=True):
            with tf.control_dependencies([operation]):
                values.append(read(handle))
        return values


def _whole_copy(shape: Sequence[int], dtype: tf.DType, wholes: list[tf.Tensor] | int) -> _WholeCopy:
    """Make a temporary variable on each rank, and fill it with the whole value if there is one.

    Args:
        shape: the shape of the variable.
        dtype: the dtype of the values; a reference dtype for a variable that is a reference.
        wholes: the whole value on each rank; the number of ranks if there is no value.
    """
    count = wholes if isinstance(wholes, int) else len(wholes)
    handles = [_variable(shape, dtype) for _ in range(count)]
    if isinstance(wholes, int):
        return _WholeCopy(handles, [None] * count)
    return _WholeCopy(handles, [write(h, w) for h, w in zip(handles, wholes, strict=True)])


def _variable(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    name = f"whole{next(_numbers)}"
    if dtype._is_ref_dtype:
        return tf.raw_ops.VariableV2(shape=shape, dtype=dtype.base_dtype, shared_name=name)
    return tf.raw_ops.VarHandleOp(shape=shape, dtype=dtype, shared_name=name)
