"""Loops over tensors in a step become functions: one operator each in the step's graph.

TensorFlow's gradient of a loop rewrites the loop, and makes it part of the gradients. In a function
the loop stays as it was written, and every rank differentiates its own. Variables that a loop reads
are read before it, so that the plan decides their layout. A recurrent layer of Keras computes each
example by itself, so its function is split by examples. Other loops run whole on every device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.frontend.definitions.nodes import before
from tensoropt.frontend.steps.loop_variables import (
    arrays_as_tensors,
    as_passed,
    stacked,
    with_shape,
)
from tensoropt.graph.from_tensorflow import ROWS_ATTRIBUTE
from tensoropt.tensorflow_private import func_graph, record, resource_variable_ops, while_v2

__all__ = ["loops_as_functions", "mark_rows", "reads_in"]


@contextmanager
def loops_as_functions(graph: func_graph.FuncGraph) -> Iterator[None]:
    """A context that turns the loops of a step into functions while the step is traced.

    Raises:
        GraphError: from a loop that changes a variable, or reads a list of tensors from outside.
    """
    loop = while_v2.while_loop

    def while_loop(cond: Any, body: Any, loop_vars: Any, *args: Any, **kwargs: Any) -> Any:
        passed = [as_passed(value) for value in tf.nest.flatten(loop_vars)]
        known = [variable for variable in passed if variable is not None]
        if not _is_traced(graph) or len(known) < len(passed):
            return loop(cond, body, loop_vars, *args, **kwargs)

        def compute(*values: tf.Tensor) -> Any:
            again = [variable.inside(value) for variable, value in zip(known, values, strict=True)]
            results = loop(cond, body, tf.nest.pack_sequence_as(loop_vars, again), *args, **kwargs)
            return tf.nest.map_structure(stacked, results)

        starts = [variable.tensor for variable in known]
        outputs, structure = _called(graph, compute, starts)
        ends = [variable.outside(value) for variable, value in zip(known, outputs, strict=False)]
        return tf.nest.pack_sequence_as(structure, [*ends, *outputs[len(starts) :]])

    with ExitStack() as stack:
        stack.enter_context(_replaced(while_v2, "while_loop", while_loop))
        stack.enter_context(arrays_as_tensors())
        keras = sys.modules.get("keras")
        if keras is not None and keras.config.backend() == "tensorflow":
            layer, masks = keras.layers.RNN, set[str]()
            inner = _inner_loop(graph, layer.inner_loop, masks)
            stack.enter_context(_replaced(layer, "inner_loop", inner))
            configure = _noting_operators(graph, layer._maybe_config_dropout_masks, masks)
            stack.enter_context(_replaced(layer, "_maybe_config_dropout_masks", configure))
        legacy = sys.modules.get("tf_keras.src.backend")
        if legacy is not None:
            stack.enter_context(_replaced(legacy, "rnn", _rnn(graph, legacy.rnn)))
        yield


def _noting_operators(
    graph: func_graph.FuncGraph, configure: Callable[..., Any], masks: set[str]
) -> Callable[..., Any]:
    """Wrap a layer's method that makes dropout masks: it adds its operators' names to ``masks``."""

    def configured(*given: Any) -> Any:
        first = len(graph.get_operations())
        result = configure(*given)
        masks.update(str(operation.name) for operation in graph.get_operations()[first:])
        return result

    return configured


def _inner_loop(
    graph: func_graph.FuncGraph, loop: Callable[..., Any], masks: set[str]
) -> Callable[..., Any]:
    """Wrap the loop of a recurrent layer of Keras 3; its first states and dropout masks exist."""

    def inner_loop(
        layer: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> Any:
        def compute(*given: Any) -> Any:
            return loop(layer, *given, training=training)

        given = sequences, initial_state, mask
        if layer.unroll or not _is_traced(graph):
            return compute(*given)
        return _by_examples(graph, compute, given, layer.return_sequences, masks)

    return inner_loop


def _rnn(graph: func_graph.FuncGraph, loop: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the loop of a recurrent layer of tf_keras."""

    def rnn(
        step_function: Any,
        inputs: Any,
        initial_states: Any,
        go_backwards: bool = False,
        mask: Any = None,
        **options: Any,
    ) -> Any:
        def compute(inputs: Any, states: Any, mask: Any) -> Any:
            return loop(step_function, inputs, states, go_backwards, mask, **options)

        given = inputs, initial_states, mask
        if options.get("unroll") or options.get("time_major") or not _is_traced(graph):
            return compute(*given)
        has_all_outputs = options.get("return_all_outputs", True)
        return _by_examples(graph, compute, given, has_all_outputs, frozenset())

    return rnn


def _by_examples(
    graph: func_graph.FuncGraph,
    loop: Callable[..., Any],
    given: Any,
    has_all_outputs: bool,
    masks: Collection[str],
) -> Any:
    """The results of a loop over the steps of sequences, by a function that is split by examples.

    Args:
        graph: the graph to add it to.
        loop: a function of sequences, their first states, and a mask or None.
        given: the arguments of ``loop``.
        has_all_outputs: whether the loop returns the outputs of all steps.
        masks: names of outer operators that make dropout masks, one row per example.
    """
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(given) if leaf is not None]

    def compute(*arguments: tf.Tensor) -> Any:
        left = iter(arguments)
        again = tf.nest.map_structure(lambda leaf: None if leaf is None else next(left), given)
        return loop(*again)

    outputs, structure = _called(graph, compute, leaves, masks)
    sequences = leaves[0]
    steps = tf.shape(sequences)[:2]
    shaped = []
    for output in outputs:
        dims = output.shape.as_list()
        has_steps = dims[:2] == [None, None] or (len(dims) > 2 and dims[1] == sequences.shape[1])
        first = 2 if has_steps and has_all_outputs else 1
        shaped.append(with_shape(output, tf.concat([steps[:first], output.shape[first:]], 0)))
    return tf.nest.pack_sequence_as(structure, shaped)


def _called(
    graph: func_graph.FuncGraph,
    compute: Callable[..., Any],
    inputs: Sequence[tf.Tensor],
    masks: Collection[str] | None = None,
) -> tuple[list[tf.Tensor], Any]:
    """The results of a function, from one operator that calls it.

    Args:
        graph: the graph to add the operator to.
        compute: a function of tensors like the inputs; other tensors of the graph that it reads
            become inputs, too.
        inputs: tensors of the graph.
        masks: None if the function mixes examples. Otherwise it computes each example by itself,
            from one row of each input and of each tensor that it reads with a row for each
            example. The operators with these names make tensors with a row for each example.

    Returns:
        The results, flat, and their structure.
    """
    function, is_by_rows = _function(graph, compute, inputs, masks is not None)
    inner_graph = function.graph
    captured = list(function.captured_inputs)
    for tensor in inner_graph.inputs[len(inputs) :]:
        if tensor.dtype in (tf.resource, tf.variant):
            raise GraphError(
                "a loop over tensors in a step changes no variable and reads no list of tensors "
                f"from outside. Got {tensor.name!r} in one; change the variable after the loop (a "
                "Dropout layer inside of a recurrent cell draws from one: give the recurrent layer "
                "dropout= instead), or unroll the loop (a recurrent layer of Keras by unroll=True, "
                "a Python loop over a range as it is)."
            )
    function.add_to_graph(graph)
    arguments = [*inputs, *captured]
    with record.stop_recording():
        results = list(
            tf.raw_ops.PartitionedCall(
                args=arguments, Tout=[tensor.dtype for tensor in inner_graph.outputs], f=function
            )
        )
    operation = results[0].op
    for result, inner in zip(results, inner_graph.outputs, strict=True):
        result.set_shape(inner.shape)
    if is_by_rows and masks is not None:
        dims = [_first_dim(graph, tensor, inputs[0], masks) for tensor in captured]
        of_captured = [dim for dim in dims if dim is not None]
        if of_captured == dims:
            rows = [0] * len(inputs) + of_captured + [0] * len(results)
            mark_rows(operation, rows)

    def zeros(*_: Any) -> list[Any]:
        """Zeros in place of gradients: ranks differentiate their emitted function, not this one."""
        return [
            tf.zeros_like(argument) if _has_gradient(argument.dtype) else None
            for argument in arguments
        ]

    record.record_operation("PartitionedCall", results, arguments, zeros)
    return results, inner_graph.structured_outputs


def _has_gradient(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_complex)


def _function(
    graph: func_graph.FuncGraph,
    compute: Callable[..., Any],
    inputs: Sequence[tf.Tensor],
    is_by_rows: bool,
) -> tuple[Any, bool]:
    """A function of tensors like some inputs, and whether it accepts any number of rows."""
    exact = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    of_rows = [
        tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) for tensor in inputs if is_by_rows
    ]
    with reads_in(graph):
        try:
            specs = of_rows or exact
            return tf.function(compute, autograph=False).get_concrete_function(*specs), is_by_rows
        except (TypeError, ValueError):  # a cell that needs the number of examples
            if not is_by_rows:
                raise
            return tf.function(compute, autograph=False).get_concrete_function(*exact), False


def _first_dim(
    graph: func_graph.FuncGraph, value: tf.Tensor, rows: tf.Tensor, masks: Collection[str]
) -> int | None:
    """The dimension of examples of a tensor that a function reads.

    Args:
        graph: the graph of the tensor.
        value: the tensor.
        rows: a tensor with one row for each example.
        masks: names of operators that make a row for each example.

    Returns:
        0 if the first dimension counts examples, -1 if it does not. None if this is not known, or
        if it counts a known number of examples: then the function is for that number alone.
    """
    if not value.shape.rank or value.shape[0] not in (None, rows.shape[0]):
        return -1
    if value.shape[0] is None:
        return 0
    if value.op.name in masks:
        return None
    captured = {internal.op for _, internal in graph.captures}
    given = {tensor.op for tensor in graph.inputs} - captured
    return -1 if given.isdisjoint(before([value.op])) else None


@contextmanager
def reads_in(graph: tf.Graph) -> Iterator[None]:
    """Read variables in this graph, even if a function inside of it asks for them."""
    kind = resource_variable_ops.BaseResourceVariable
    read = kind._read_variable_op

    def read_outside(variable: Any, *args: Any, **kwargs: Any) -> Any:
        with graph.as_default():
            return read(variable, *args, **kwargs)

    with _replaced(kind, "_read_variable_op", read_outside):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _is_traced(graph: func_graph.FuncGraph) -> bool:
    """Whether the step of this graph is being traced, not a function inside of it."""
    return tf.compat.v1.get_default_graph() is graph


def mark_rows(call: tf.Operation, rows: Sequence[int]) -> None:
    """Mark the call of a function that computes each row by itself.

    Args:
        call: the operator.
        rows: see `ROWS_ATTRIBUTE`.
    """
    attribute = tf.compat.v1.AttrValue()
    attribute.list.i.extend(rows)
    call._set_attr(ROWS_ATTRIBUTE, attribute)
