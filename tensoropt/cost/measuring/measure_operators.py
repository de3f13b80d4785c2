"""Measure operators: TensorFlow runs them at local shapes, forward and backward.

Each operator is timed in a session of its own, in chains that resemble a training step. In the
forward chain, every link reads variables of its own, which are not in a cache any more, and shares
the other inputs, which were just computed. The backward chain runs after the whole forward chain,
in reverse, and each link reads tensors of its own. All results are kept until the end. All ranks
time the same operator at the same time, since they share memory, caches and sometimes cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, process_time
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from collectives import Group
from collectives.bandwidth.timing import clocked, seconds_taken, timing
from tensoropt.cost.measured_operator_times import MeasuredOperator
from tensoropt.cost.operator_time import SPELLED_OUT, LocalOperator, OperatorWork
from tensoropt.errors import OptionError
from tensoropt.graph.from_tensorflow import local_attribute, synthetic_attributes
from tensoropt.graph.operator import VARIABLE_TYPES, Operator
from tensoropt.parallel.configuration import input_slot
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import operator_type

__all__ = [
    "ROUNDS",
    "TENSORFLOW",
    "Lowering",
    "measure_operator",
    "stored_tensor",
    "timed_in_turn",
]

EmitParts = Callable[[LocalOperator, Mesh, Sequence[tf.Tensor]], list[tf.Tensor]]
"""Emits an operator that a lowering rule divides into several, without its collectives. It takes a
device's pieces of the inputs and returns its pieces of the outputs."""


class Lowering(NamedTuple):
    """The kernels that steps run in place of a script's own.

    Attributes:
        emit_parts: emits an operator that a lowering rule divides; None if TensorFlow's kernel is
            timed.
        gradients: for each operator type with a gradient function of its own, the name under which
            that is registered with TensorFlow.
    """

    emit_parts: EmitParts | None = None
    gradients: Mapping[str, str] = MappingProxyType({})


TENSORFLOW = Lowering()
"""Every operator and its gradient by TensorFlow's own kernels."""

_CHAIN_SECONDS = 3e-3
"""Intended duration of a chain."""
_LONGEST_CHAIN = 16
"""Largest number of links."""
_CHAIN_BYTES = 192 * 2**20
"""Largest memory of all links."""
_CACHED_BYTES = 48 * 2**20
"""Bytes of variables that exceed a core's share of the caches."""
_COMPUTING_SECONDS = 20e-3
"""Duration beyond which a chain gets no links for the caches' sake: arithmetic takes most of it."""
ROUNDS = 15
"""The most repetitions of each chain. The chains take turns."""
_LEAST_ROUNDS = 3
"""The fewest repetitions: a median leaves out one that was disturbed."""
_ROUNDS_SECONDS = 0.25
"""Time for the repetitions beyond the least: long chains repeat well, and the time of a profile
is better spent on more operators."""

_FAILURES = (
    tf.errors.OpError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
)


def measure_operator(
    everyone: Group,
    script: tf.Graph,
    local: LocalOperator,
    mesh: Mesh,
    seconds: float,
    config: tf.compat.v1.ConfigProto | None = None,
    lowering: Lowering = TENSORFLOW,
    rounds: int = ROUNDS,
    shared: bool = False,
) -> MeasuredOperator | str:
    """Time an operator on all ranks at once. Every rank of ``everyone`` calls.

    Args:
        everyone: all ranks.
        script: the TensorFlow graph with the operator, for its attributes.
        local: the operator.
        mesh: the devices.
        seconds: rough time of its kernel, the same on all ranks.
        config: configuration of the session.
        lowering: the kernels that steps run.
        rounds: number of repetitions.
        shared: whether ranks share cores.

    Returns:
        The time of the slowest rank, or, if ranks share cores, the core time per rank
        (`seconds_taken`). If the operator cannot be timed, the reason.
    """
    with tf.Graph().as_default() as graph:
        chains: _Chains | None = None
        reason = ""
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            try:
                chains = _Chains(script, local, mesh, _links(local.work, seconds), lowering)
                session.run(tf.compat.v1.global_variables_initializer())
                chains.warm(session)
            except _FAILURES as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
            failures = [str(text) for text in everyone.allgather_object(reason) if text]
            if failures or chains is None:
                return failures[0]
            return chains.measured(everyone, session, local.work, rounds, shared)


def _links(work: OperatorWork, seconds: float) -> int:
    """Return the number of links of a chain."""
    by_time = _CHAIN_SECONDS / max(seconds, 1e-7)
    by_caches = min(_CACHED_BYTES / max(work.bytes, 1), _COMPUTING_SECONDS / max(seconds, 1e-7))
    by_memory = _CHAIN_BYTES / max(work.bytes, 1)
    return int(min(max(min(max(by_time, by_caches), by_memory), 1), _LONGEST_CHAIN))


class _Chains:
    """Chains of one operator in the default graph: the reads of its inputs alone, the operator for
    every link, and the operator with its gradients."""

    def __init__(
        self,
        script: tf.Graph,
        local: LocalOperator,
        mesh: Mesh,
        links: int,
        lowering: Lowering,
    ) -> None:
        self._links = links
        self._local = local
        self._mesh = mesh
        has_parts = any(name == SPELLED_OUT for name, _ in local.work.attributes)
        self._emit_parts = lowering.emit_parts if has_parts else None
        self._gradients = dict(lowering.gradients)
        operator = local.operator
        original = None
        if not operator.synthetic:
            original = script.get_operation_by_name(operator.name)
        attributes = _attributes(operator, original)
        if any(value.HasField("func") for value in attributes.values()):
            raise OptionError("operators that call functions are not timed.")
        local_values = local_form(
            local.derivation,
            local.configuration,
            mesh,
            operator.input_specs,
            operator.attributes,
        )
        for key, value in local_values.items():
            if isinstance(key, str):
                attributes[key] = local_attribute(value, attributes[key])
        linked = [_inputs(local, mesh, local_values, original) for _ in range(links)]
        given = [None] * len(linked[0]) if original is None else list(original.inputs)
        # Only variables are different in every link.
        inputs = [
            [
                of_link if _is_variable(tensor) else shared
                for of_link, shared, tensor in zip(link, linked[0], given, strict=True)
            ]
            for link in linked
        ]
        self._type = operator.type
        self._dtypes = [tf.as_dtype(spec.dtype) for spec in operator.outputs]
        if original is not None:
            self._dtypes = [tensor.dtype for tensor in original.outputs]
        self._attributes = attributes
        self.reads = tf.group(*_read(inputs))
        self.forward = self._chain(inputs, ())
        self.forward_of_links: tf.Operation | None = None
        self.both: tf.Operation | None = None
        if local.differentiated:
            self.forward_of_links = self._chain(linked, ())
            self.both = self._chain(linked, local.differentiated)

    def _chain(
        self, inputs: Sequence[Sequence[tf.Tensor]], differentiated: Sequence[int]
    ) -> tf.Operation:
        """Return an operation that runs a chain, with the gradients by some inputs."""
        kept: list[tf.Tensor] = []
        outputs_of_links: list[list[tf.Tensor]] = []
        last: tf.Operation = tf.group(*_read(inputs))
        for link in inputs:
            with tf.control_dependencies([last]):
                last, outputs = self._emitted(link)
            outputs_of_links.append(outputs)
            kept += [tensor for tensor in outputs if not tensor.dtype._is_ref_dtype]
        upstream: list[tf.Tensor] = []
        for link, outputs in zip(reversed(inputs), reversed(outputs_of_links), strict=True):
            if not differentiated:
                break
            ys = _differentiable(self._type, outputs)
            if not upstream:
                with tf.control_dependencies(None):
                    upstream = [stored_tensor(tuple(y.shape.as_list()), y.dtype) for y in ys]
            with tf.control_dependencies([last]):
                gradients = tf.gradients(ys, [link[n] for n in differentiated], grad_ys=upstream)
            last = tf.group(last, *[g for g in gradients if g is not None])
        return tf.group(last, tf.identity_n(kept)[0]) if kept else last

    def _emitted(self, inputs: Sequence[tf.Tensor]) -> tuple[tf.Operation, list[tf.Tensor]]:
        """Emit the operator, and return it with its outputs."""
        graph = tf.compat.v1.get_default_graph()
        with graph.gradient_override_map(self._gradients):
            if self._emit_parts is not None:
                outputs = self._emit_parts(self._local, self._mesh, inputs)
                return tf.group(*outputs), outputs
            operation = graph.create_op(
                self._type, list(inputs), dtypes=self._dtypes, attrs=self._attributes
            )
            return operation, list(operation.outputs)

    def warm(self, session: tf.compat.v1.Session) -> None:
        """Run every chain once."""
        for operation in (self.reads, self.forward, self.forward_of_links, self.both):
            if operation is not None:
                session.run(operation)

    def measured(
        self,
        everyone: Group,
        session: tf.compat.v1.Session,
        work: OperatorWork,
        rounds: int,
        shared: bool,
    ) -> MeasuredOperator:
        """Time the chains in turn, and return the time of one operator."""
        operations = (self.reads, self.forward, self.forward_of_links, self.both)
        chains = [chain for chain in operations if chain is not None]
        runs = [session.make_callable(chain) for chain in chains]
        once = timed_in_turn(everyone, runs, 1, False).sum()
        rounds = min(rounds, max(_LEAST_ROUNDS, int(_ROUNDS_SECONDS / once)))
        seconds = timed_in_turn(everyone, runs, rounds, shared)
        reads, *chain_seconds = np.median(seconds, axis=0)
        forward = max(chain_seconds[0] - reads, 1e-9) / self._links
        backward = 0.0
        if len(chain_seconds) > 1:
            backward = max(chain_seconds[2] - chain_seconds[1], 0.0) / self._links
        repeated = timing(np.maximum(seconds[:, -1], 1e-9))
        return MeasuredOperator(
            work,
            max(1, round(forward * 1e9)),
            round(backward * 1e9),
            round(repeated.spread, 4),
            repeated.outliers,
        )


def timed_in_turn(
    everyone: Group, runs: Sequence[Callable[[], object]], rounds: int, shared: bool
) -> npt.NDArray[np.float64]:
    """Time some runs in turn, each on all ranks at once. Every rank calls.

    Args:
        everyone: all ranks.
        runs: the runs.
        rounds: number of repetitions.
        shared: whether ranks share cores.

    Returns:
        float64[rounds, runs], seconds of the slowest rank; if ranks share cores, `seconds_taken`.
    """
    clock = process_time if shared else perf_counter
    seconds = np.empty((rounds, len(runs)), np.float64)
    for row in seconds:
        for number, run in enumerate(runs):
            everyone.barrier()
            _, row[number] = clocked(run, clock)
    return seconds_taken(seconds, everyone) if shared else everyone.allreduce(seconds, "max")


def _differentiable(type_: str, outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    floating = [tensor for tensor in outputs if tensor.dtype.is_floating]
    return floating[:1] if operator_type(type_).outputs_for_gradient else floating


def _inputs(
    local: LocalOperator,
    mesh: Mesh,
    local_values: Mapping[int | str, object],
    original: tf.Operation | None,
) -> list[tf.Tensor]:
    """Return tensors of the local shapes. Constants that the description reads keep their value."""
    tensors = []
    for number, spec in enumerate(local.operator.input_specs):
        given = None if original is None else original.inputs[number]
        dtype = tf.as_dtype(spec.dtype) if given is None else given.dtype
        layout = input_slot(local.derivation, local.configuration, number).forward
        if number in local_values:
            tensors.append(tf.constant(local_values[number], dtype.base_dtype))
        elif spec.value is not None:
            region = layout.region(spec.shape, mesh, 0)
            tensors.append(tf.constant(spec.value[region], dtype.base_dtype))
        elif given is not None and (dtype == tf.resource or dtype._is_ref_dtype):
            tensors.append(_stored(layout.local_shape(spec.shape, mesh), given))
        else:
            tensors.append(stored_tensor(layout.local_shape(spec.shape, mesh), dtype))
    return tensors


def _read(inputs: Sequence[Sequence[tf.Tensor]]) -> list[tf.Operation]:
    """Return the operations that make the inputs of all links."""
    operations = dict.fromkeys(t.op for link in inputs for t in link if t.dtype != tf.resource)
    return list(operations)


def _is_variable(given: tf.Tensor | None) -> bool:
    """Whether a tensor of the script is a variable or its value."""
    while given is not None and operator_type(given.op.type).value in ("same", "converted"):
        given = given.op.inputs[0]
    return given is not None and given.op.type in VARIABLE_TYPES


def stored_tensor(shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
    """Return the value of a new variable: a tensor that no operator has to compute.

    It is read after the operations of the current control dependencies.
    """
    return _new_variable(shape, dtype, use_resource=True).read_value()


def _stored(shape: tuple[int, ...], given: tf.Tensor) -> tf.Tensor:
    """Return the handle of a new variable, or a reference to it."""
    if given.dtype != tf.resource:
        return _new_variable(shape, given.dtype.base_dtype, use_resource=False)._ref()
    if given.op.type != "VarHandleOp":
        raise OptionError(f"operators on a {given.op.type} are not timed.")
    dtype = tf.as_dtype(given.op.get_attr("dtype"))
    return _new_variable(shape, dtype, use_resource=True).handle


def _new_variable(shape: tuple[int, ...], dtype: tf.DType, use_resource: bool) -> Any:
    number = len(tf.compat.v1.global_variables())
    if dtype.is_floating:
        values = np.random.default_rng(number).random(4096, np.float32) + 0.5  # no denormals
    elif dtype.is_integer or dtype.is_bool:
        values = np.zeros(1)
    else:
        raise OptionError(f"operators on {dtype.name} are not timed.")

    def initial(*_: object, **__: object) -> tf.Tensor:
        return tf.numpy_function(
            lambda: np.resize(values.astype(dtype.as_numpy_dtype), shape), [], dtype
        )

    return tf.compat.v1.get_variable(
        f"value_{number}", shape, dtype, initial, trainable=False, use_resource=use_resource
    )


def _attributes(operator: Operator, original: tf.Operation | None) -> dict[str, Any]:
    """Return the script's attributes, or those of an operator that the importer added."""
    if original is not None:
        return {
            name: value
            for name, value in original.node_def.attr.items()
            if name not in ("_class", "_output_shapes")
        }
    return synthetic_attributes(operator)
