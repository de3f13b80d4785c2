"""TensorFlow 1's loops over the steps of sequences, as functions of examples.

``dynamic_rnn`` and ``bidirectional_dynamic_rnn`` run a cell in a loop over lists of tensors, which
a plan cannot lay out. If the cell computes each example by itself, the loop becomes a function: one
operator of the script's graph, which is split by examples. The function's variables are read before
it. Any other loop stays as TensorFlow makes it, and runs whole on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tensoropt.execution.lowering.functions import called_in_place
from tensoropt.frontend.inputs.by_rows import is_by_rows
from tensoropt.frontend.steps.traced_loops import mark_rows, reads_in
from tensoropt.tensorflow_private import (
    control_flow_util_v2,
    func_graph,
    nest,
    rnn,
    unrecorded_gradients,
)

__all__ = ["install"]

_loop = rnn._dynamic_rnn_loop


def install() -> None:
    """Replace the loop that ``dynamic_rnn`` calls by one that is split by examples."""
    rnn._dynamic_rnn_loop = _by_examples


class _Watched:
    """A recurrent cell that records the tensors of its last call.

    Attributes:
        read: inputs and state.
        results: outputs and new state.
    """

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self.read: list[tf.Tensor] = []
        self.results: list[tf.Tensor] = []

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def __call__(self, inputs: Any, state: Any) -> Any:
        inputs, state = nest.map_structure(tf.identity, (inputs, state))
        results = self._cell(inputs, state)
        self.read, self.results = nest.flatten((inputs, state)), nest.flatten(results)
        return results


def _by_examples(
    cell: Any,
    inputs: Any,
    initial_state: Any,
    parallel_iterations: int,
    swap_memory: bool,
    sequence_length: tf.Tensor | None = None,
    dtype: Any = None,
) -> Any:
    """Outputs [time, batch, ...] and final states [batch, ...], see TensorFlow's own loop.

    TensorFlow's loop is always made, because the cell makes its variables in it. Nothing reads this
    loop if a function takes its place.
    """
    graph = tf.compat.v1.get_default_graph()
    given = inputs, initial_state, sequence_length

    def loop(cell: Any, given: Any) -> Any:
        steps, state, lengths = given
        return _loop(cell, steps, state, parallel_iterations, swap_memory, lengths, dtype)

    names = set(_variables())
    plain = loop(cell, given)
    leaves = [leaf for leaf in nest.flatten(given) if leaf is not None]
    is_elsewhere = tf.executing_eagerly() or isinstance(graph, func_graph.FuncGraph)
    if is_elsewhere or not all(map(_has_rows, leaves)):
        return plain
    dims = [1] * len(nest.flatten(inputs)) + [0] * (len(leaves) - len(nest.flatten(inputs)))
    with _reused(set(_variables()) - names):
        loop_graph = _traced(graph, cell, loop, given, dims)
    return plain if loop_graph is None else _called(graph, loop_graph, leaves, dims)


def _has_rows(value: Any) -> bool:
    """Whether a value is a tensor of numbers with a row for each example."""
    is_tensor = isinstance(value, tf.Tensor) and value.dtype not in (tf.resource, tf.variant)
    return bool(is_tensor and value.shape.rank)


def _traced(
    graph: tf.Graph,
    cell: Any,
    loop: Callable[..., Any],
    given: Any,
    dims: Sequence[int],
) -> func_graph.FuncGraph | None:
    """The loop as a function of any number of examples; None if its cell mixes examples."""
    left = iter(dims)

    def signature(value: tf.Tensor | None) -> tf.TensorSpec | None:
        if value is None:
            return None
        shape, dim = value.shape.as_list(), next(left)
        return tf.TensorSpec([*shape[:dim], None, *shape[dim + 1 :]], value.dtype)

    watched = _Watched(cell)
    specs = nest.map_structure(signature, given)
    try:
        with reads_in(graph):
            loop_graph = func_graph.func_graph_from_py_func(
                control_flow_util_v2.unique_fn_name("dynamic_rnn", "examples"),
                lambda *arguments: _sized(loop(watched, arguments), arguments),
                specs,
                {},
                add_control_dependencies=False,
            )
    except (TypeError, ValueError):  # a cell that needs the number of examples
        return None
    captured = [*loop_graph.inputs[len(dims) :]]
    is_whole = any(tensor.dtype in (tf.resource, tf.variant) for tensor in captured)
    if is_whole or not is_by_rows(watched.read, watched.results):
        return None
    return loop_graph


def _sized(results: Any, given: Any) -> Any:
    """Outputs and final states with shapes computed from the inputs'; loops hide their shapes."""
    sizes = tf.shape(nest.flatten(given)[0])[:2]

    def sized(value: tf.Tensor, first: int) -> tf.Tensor:
        rest = value.shape[2 - first :]
        return tf.reshape(value, tf.concat([sizes[first:], rest], 0))

    outputs, states = results
    return (
        nest.map_structure(lambda tensor: sized(tensor, 0), outputs),
        nest.map_structure(lambda tensor: sized(tensor, 1), states),
    )


def _called(
    graph: tf.Graph,
    loop_graph: func_graph.FuncGraph,
    inputs: Sequence[tf.Tensor],
    dims: Sequence[int],
) -> Any:
    """The results of a loop over sequences, from one operator that calls its function."""
    name = control_flow_util_v2.create_new_tf_function(loop_graph)

    def gradient(operation: tf.Operation, *arriving: Any) -> Any:
        """The gradient in sessions of plain TensorFlow; ranks differentiate their own loops."""
        # One input may be computed from another one, whose gradient must stop here all the same.
        xs = [tf.identity(tensor) for tensor in operation.inputs]
        again = called_in_place(graph, name, xs, f"{operation.name}_again")
        pairs = zip(again.outputs, arriving, strict=True)
        known = [(result, gradient) for result, gradient in pairs if gradient is not None]
        ys, grad_ys = zip(*known, strict=True)
        return unrecorded_gradients(list(ys), xs, list(grad_ys))

    arguments = [*inputs, *loop_graph.external_captures]
    dtypes = [tensor.dtype for tensor in loop_graph.outputs]
    with graph._override_gradient_function({"PartitionedCall": gradient}):
        results = tf.raw_ops.PartitionedCall(args=arguments, Tout=dtypes, f=name)
    outputs, states = loop_graph.structured_outputs
    count = len(nest.flatten(outputs))
    of_results = [1] * count + [0] * (len(results) - count)
    static = inputs[0].shape[:2]
    mark_rows(results[0].op, [*dims, *[-1] * len(loop_graph.external_captures), *of_results])
    for result, inner, dim in zip(results, loop_graph.outputs, of_results, strict=True):
        result.set_shape(static[1 - dim :].concatenate(inner.shape[dim + 1 :]))
    return nest.pack_sequence_as((outputs, states), results)


def _variables() -> list[str]:
    return [variable.op.name for variable in tf.compat.v1.global_variables()]


@contextmanager
def _reused(names: set[str]) -> Iterator[None]:
    """A context in which a cell gets these variables by name, and makes no other variable."""

    def get(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        if any(variable == name or variable.startswith(f"{name}/part_") for variable in names):
            kwargs["reuse"] = True
        return getter(name, *args, **kwargs)

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("a cell that is called again makes no variable. Got another one.")

    scope = tf.compat.v1.get_variable_scope()
    with (
        tf.variable_creator_scope(refuse),
        tf.compat.v1.variable_scope(scope, custom_getter=get, auxiliary_name_scope=False),
    ):
        yield
