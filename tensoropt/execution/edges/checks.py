"""Operators that check values. If a check fails on a rank, the step changes nothing on any rank.

TensorFlow ends a run at the first operator that fails: the rank would leave out its remaining
collectives, and the other ranks would wait. Therefore an emitted check does not fail. It notes the
failure, and the step goes on up to the first change of a variable. There the ranks add up the
numbers of failures in one collective, and all later operators wait for the sum. If it is not zero,
the run fails on every rank at this point: no variable is changed, and all ranks have run the same
collectives.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.sequence import active_sequence
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.gradient_functions.custom_gradients import differentiated_as
from tensoropt.execution.world.world import World
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, function_closure
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.layout import Layout
from tensoropt.tensorflow_private import script_ops

__all__ = ["Checks", "checks_of", "first_failure"]

Create = Callable[[Sequence[tf.Tensor]], tf.Operation]
Attributes = Mapping[str, tf.compat.v1.AttrValue]

_NUMERICS = frozenset({"CheckNumerics", "CheckNumericsV2"})
_FUNCTIONS = frozenset({"PyFunc", "PyFuncStateless"})
_CONDITIONALS = frozenset({"If", "StatelessIf"})
_PASSIVE = frozenset({"Const", "Identity", "NoOp"})
_SCOPE = "checked_on_all_ranks"
_IN_GRADIENT = "Not a number (NaN) or infinity (Inf) values detected in gradient. "

_CODES: tuple[tuple[type[Exception], type[tf.errors.OpError]], ...] = (
    (ValueError, tf.errors.InvalidArgumentError),
    (TypeError, tf.errors.InvalidArgumentError),
    (StopIteration, tf.errors.OutOfRangeError),
    (MemoryError, tf.errors.ResourceExhaustedError),
    (NotImplementedError, tf.errors.UnimplementedError),
    (Exception, tf.errors.UnknownError),
)
"""TensorFlow's errors for exceptions of Python functions; the first type that fits holds."""


def checks_of(script: tf.Graph, graph: Graph) -> frozenset[str]:
    """Return the operators that check values and run before the first change of a variable.

    Args:
        script: the script's graph.
        graph: the operators of a program, in topological order.
    """
    checks: set[str] = set()
    late: set[str] = set()  # operators that change variables or need operators that do
    for operator in graph:
        if operator.mutates or not late.isdisjoint(operator.predecessors):
            late.add(operator.name)
        elif _checks(script, operator):
            checks.add(operator.name)
    return frozenset(checks)


def _checks(script: tf.Graph, operator: Operator) -> bool:
    if operator.synthetic or operator.type not in {
        *_NUMERICS,
        *_FUNCTIONS,
        *_CONDITIONALS,
        "Assert",
    }:
        return False
    attributes = script.get_operation_by_name(operator.name).node_def.attr
    if operator.type in _CONDITIONALS:
        return _asserts(script, attributes)
    return OWN_GRADIENT not in attributes


def _asserts(script: tf.Graph, attributes: Attributes) -> bool:
    """Whether a conditional does nothing if its condition holds, and fails otherwise.

    TensorFlow makes such a conditional for `tf.Assert` of data that may lie on another device.
    """
    if_holds, if_fails = (
        {node.op for node in branch.node_def} for branch in _branches(script, attributes)
    )
    return if_holds <= _PASSIVE and if_fails - _PASSIVE == {"Assert"}


def _branches(script: tf.Graph, attributes: Attributes) -> tuple[Any, Any]:
    names = [attributes[branch].func.name for branch in ("then_branch", "else_branch")]
    functions = function_closure(script, names)
    return functions[names[0]], functions[names[1]]


def _asserted_data(function: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the data of a function's Assert, as tensors outside of the function."""
    names = (argument.name for argument in function.signature.input_arg)
    arguments = dict(zip(names, inputs, strict=True))
    nodes = {node.name: node for node in function.node_def}
    data = []
    for name in next(node for node in function.node_def if node.op == "Assert").input[1:]:
        name = name.partition(":")[0]
        while name in nodes and nodes[name].op == "Identity":
            name = nodes[name].input[0].partition(":")[0]
        if name in arguments:
            data.append(arguments[name])
        elif name in nodes:
            data.append(tf.constant(tf.make_ndarray(nodes[name].attr["value"].tensor)))
    return data


class Checks:
    """The checks of one program; the module's docstring says how they work.

    Args:
        script: the script's graph.
        names: names of the operators that are checks, in all stages.
        world: all ranks that take part in the program.
        plan_steps: plans a resharding between them.
        target: the TensorFlow graph to emit into.

    Attributes:
        gates: per rank emitted here, the operation that fails if a check failed on any rank; empty
            if the program has no checks.
    """

    def __init__(
        self,
        script: tf.Graph,
        names: frozenset[str],
        world: World,
        plan_steps: PlanSteps,
        target: tf.Graph,
    ) -> None:
        self._script = script
        self._names = names
        self._world = world
        self._plan_steps = plan_steps
        self._target = target
        self._checks: list[tuple[tf.Tensor, Sequence[Any]]] = []  # whether it holds, error's data
        self._raised: list[tuple[int, str]] = []
        self._is_closed = False
        self.gates: tuple[tf.Operation, ...] = ()

    def kernel(self, operator: Operator, attributes: Attributes, create: Create) -> Create:
        """Return a function that emits an operator on a rank. A check that it emits never fails."""
        if operator.name not in self._names or self._is_closed:
            return create
        if operator.type in _NUMERICS:
            message = attributes["message"].s.decode()
            return lambda inputs: self._finite(inputs[0], operator.name, message).op
        if operator.type in _FUNCTIONS:
            return lambda inputs: self._called(operator, attributes, inputs)
        return lambda inputs: self._asserted(operator, attributes, inputs)

    def close(self) -> tuple[tf.Operation, ...]:
        """Emit the comparison of all ranks' checks, once. Checks that are emitted later may fail.

        Returns:
            The gates.
        """
        self._is_closed = True
        if not self._names or self.gates:
            return self.gates
        sequence = active_sequence()
        last = () if sequence is None else sequence.last
        with tf.name_scope(_SCOPE), self._target.control_dependencies(last):
            all_hold = tf.reduce_all(tf.stack([True, *(holds for holds, _ in self._checks)]))
            failed = tf.cast(tf.logical_not(all_hold), tf.int32)
            none = tf.zeros([1], tf.int32)
            counts = [tf.reshape(failed, [1]), *[none] * (len(self._world.ranks) - 1)]
            axes = tuple(range(len(self._world.mesh.axes)))
            source, target = Layout(((),), axes), Layout.replicated(1)
            steps = self._plan_steps((1,), "int32", source, target)
            counts = self._world.reshard(counts, steps, _SCOPE)
            with self._target.control_dependencies(counts):
                failing = [
                    tf.raw_ops.Assert(condition=holds, data=data) for holds, data in self._checks
                ]
            with self._target.control_dependencies(failing):
                self.gates = tuple(
                    tf.raw_ops.Assert(
                        condition=tf.equal(tf.reshape(count, []), 0),
                        data=["a check of another rank"],
                    )
                    for count in counts
                )
        if sequence is not None:
            sequence.hold(self.gates)
        return self.gates

    def ended(self, error: Exception) -> bool:
        """Whether a run failed at the gates. Then it failed there on all ranks."""
        return isinstance(error, tf.errors.OpError) and _SCOPE in error.message

    def cause(self) -> tf.errors.OpError | None:
        """Return the error of a Python function in a run that failed at another operator, or None.

        If the function fails, its outputs are zeros, on which a later operator may fail.
        """
        raised, self._raised = self._raised, []
        return _error(*raised[0]) if raised else None

    def reason(self, error: Exception) -> tuple[int, str] | None:
        """Return code and text of the check that failed on this rank, or None; forget it.

        Args:
            error: an error of a run that failed at the gates.
        """
        assert isinstance(error, tf.errors.OpError), "ended by a gate"
        raised, self._raised = self._raised, []
        if raised:
            return raised[0]
        lines = [line for line in error.message.splitlines() if line.startswith("assertion failed")]
        of_this_rank = [line for line in lines if "a check of another rank" not in line]
        return (error.error_code, of_this_rank[0]) if of_this_rank else None

    def _finite(self, values: tf.Tensor, name: str, message: str) -> tf.Tensor:
        """Emit CheckNumerics."""
        text = f"{name}: {message}: Tensor had NaN or Inf values"
        self._add(tf.reduce_all(tf.math.is_finite(values)), [text])

        def gradient(upstream: Any) -> list[tf.Tensor]:
            upstream = tf.convert_to_tensor(upstream)
            if self._is_closed:
                return [tf.debugging.check_numerics(upstream, _IN_GRADIENT + message)]
            return [self._finite(upstream, name, _IN_GRADIENT + message)]

        return differentiated_as([values], [values], gradient)[0]

    def _asserted(
        self, operator: Operator, attributes: Attributes, inputs: Sequence[tf.Tensor]
    ) -> tf.Operation:
        """Emit an Assert, or a conditional with one in a branch."""
        holds, *data = inputs
        if operator.type in _CONDITIONALS:
            data = _asserted_data(_branches(self._script, attributes)[1], data)
        holds = tf.reshape(holds, [])
        self._add(holds, data)
        if not operator.outputs:
            return tf.group(*inputs, name=operator.name)
        return tf.identity_n([holds] * len(operator.outputs), operator.name)[0].op

    def _called(
        self, operator: Operator, attributes: Attributes, inputs: Sequence[tf.Tensor]
    ) -> tf.Operation:
        """Emit a call of a Python function. If the function raises, its outputs are zeros."""
        token = attributes["token"].s.decode()
        dtypes = [tf.as_dtype(spec.dtype) for spec in operator.outputs]
        shapes = [tuple(max(n, 1) for n in spec.shape) for spec in operator.outputs]

        def call(*arrays: Any) -> list[Any]:
            try:
                values = script_ops._py_funcs(token, None, arrays)
                return [*(values if isinstance(values, list) else [values][: len(dtypes)]), True]
            except Exception as error:
                self._raised.append(_as_tensorflow(error))
                return [*map(_zeros, shapes, dtypes), False]

        *outputs, holds = tf.numpy_function(
            call,
            list(inputs),
            [*dtypes, tf.bool],
            stateful=operator.type == "PyFunc",
            name=operator.name,
        )
        for tensor, spec in zip(outputs, operator.outputs, strict=True):
            tensor.set_shape([None if n < 0 else n for n in spec.shape])
        holds.set_shape([])
        self._add(holds, [f"{operator.name} has failed"])
        with self._target.control_dependencies([holds]):
            return tf.identity_n(outputs)[0].op if dtypes else tf.no_op()

    def _add(self, holds: tf.Tensor, data: Sequence[Any]) -> None:
        self._checks.append((holds, data))


def first_failure(reasons: Sequence[tuple[int, str] | None]) -> tf.errors.OpError:
    """Return the error that all ranks raise, from the `Checks.reason` of each rank."""
    rank, (code, text) = next(
        (rank, reason) for rank, reason in enumerate(reasons) if reason is not None
    )
    where = f" It failed on rank {rank}." if len(reasons) > 1 else ""
    return _error(code, f"{text}\nThis step has changed no variable on any rank.{where}")


def _error(code: int, text: str) -> tf.errors.OpError:
    return tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, text)


def _zeros(shape: tuple[int, ...], dtype: tf.DType) -> Any:
    if dtype == tf.string:
        return np.full(shape, b"", object)
    return np.zeros(shape, dtype.as_numpy_dtype)


def _as_tensorflow(error: Exception) -> tuple[int, str]:
    """Return code and text of the error into which TensorFlow turns a Python function's error."""
    if isinstance(error, tf.errors.OpError):
        code = error.error_code
    else:
        kind = next(of_tf for of_python, of_tf in _CODES if isinstance(error, of_python))
        code = kind(None, None, "").error_code
    return int(code), f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
