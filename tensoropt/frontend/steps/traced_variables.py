"""The variables that a traced step captures, and those that it creates.

A step creates variables as a ``tf.function`` does: the operators of the trace that compute their
first values are lifted out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.frontend.definitions.nodes import before, part_of
from tensoropt.tensorflow_private import func_graph, resource_variable_ops, trackable

__all__ = ["CreatedVariables", "all_variables"]


@contextmanager
def all_variables(traced: func_graph.FuncGraph) -> Iterator[None]:
    """A context in which a function's graph also records variables that are never read.

    A kernel that updates variables, in tf_keras's older optimizers, only uses their handles.
    """
    kind = resource_variable_ops.BaseResourceVariable
    by_handle: dict[int, Any] = {}

    def handle(variable: Any) -> Any:
        by_handle[id(variable._handle)] = variable
        return variable._handle

    original = kind.handle
    kind.handle = property(handle)
    try:
        yield
    finally:
        kind.handle = original
    with traced.as_default():  # so that a variable returns its handle, not its captured placeholder
        known = {id(variable._handle) for variable in traced.variables}
    captured = [id(external) for external, _ in traced.captures]
    more = [by_handle[key] for key in captured if key in by_handle and key not in known]
    traced.variables = [*traced.variables, *more]


class CreatedVariables:
    """The variables that a trace creates.

    A first value that is a tensor of the trace cannot be read while the step is traced. Its
    variable starts with a mark, and `initialize` computes its first value after the trace, unless a
    checkpoint has set it. In the branch of a conditional the first value is computed at once.

    Attributes:
        names: names of the variables, in the order of their creation.
    """

    def __init__(self, traced: func_graph.FuncGraph) -> None:
        self.names: list[str] = []
        self._graph = traced
        self._lifted: list[tuple[Any, tf.Tensor]] = []

    def create(self, create: Callable[..., Any], **options: Any) -> Any:
        """Create a variable; see `tf.variable_creator_scope`."""
        first = options.get("initial_value")
        if callable(first) and not isinstance(first, trackable.CheckpointInitialValueCallable):
            first = first()
            options["initial_value"] = first
        graph = getattr(first, "graph", None) if tf.is_tensor(first) else None
        is_traced = graph is self._graph
        if graph is not None and not is_traced:
            options["initial_value"] = _value_in_branch(tf.convert_to_tensor(first))
        elif is_traced:
            first = tf.convert_to_tensor(first, options.get("dtype"))
            extents = [] if first.shape.rank is None else first.shape
            shape = [extent or 0 for extent in extents]
            options["shape"] = first.shape if options.get("shape") is None else options["shape"]
            options["initial_value"] = lambda: tf.fill(shape, _mark(first.dtype))
        variable = create(**options)
        self.names.append(str(variable.name))
        if is_traced:
            self._lifted.append((variable, first))
        return variable

    def initialize(self, traced: func_graph.FuncGraph) -> None:
        """Set the variables to the first values that the trace computes.

        Raises:
            GraphError: if a first value depends on the step's arguments.
        """
        captured = {internal.op for _, internal in traced.captures}
        given = {tensor.op for tensor in traced.inputs} - captured
        handles = {id(external): internal.op for external, internal in traced.captures}
        unset = [(variable, first) for variable, first in self._lifted if _is_unset(variable)]
        waiting = [(variable, first, before([first.op])) for variable, first in unset]
        for variable, _, needed in waiting:
            if not given.isdisjoint(needed):
                raise _refused(variable.name, "the step's arguments")
        while waiting:
            later = {handles.get(id(variable.handle)) for variable, _, _ in waiting}
            ready = [entry for entry in waiting if later.isdisjoint(entry[2])] or waiting
            _set(traced, [(variable, first) for variable, first, _ in ready])
            done = {id(entry) for entry in ready}
            waiting = [entry for entry in waiting if id(entry) not in done]


def _mark(dtype: tf.DType) -> tf.Tensor:
    """A value that marks a variable as unset: NaN or the least integer; zero for other types."""
    if dtype.is_floating or dtype.is_complex:
        return tf.cast(np.nan, dtype)
    return tf.constant(dtype.min, dtype) if dtype.is_integer else tf.zeros([], dtype)


def _is_unset(variable: Any) -> bool:
    """Whether a variable still has the mark, and no checkpoint has set it."""
    if getattr(variable, "_update_uid", -1) >= 0:  # the number of TensorFlow's last restore
        return False
    value = variable.read_value().numpy()
    mark = _mark(variable.dtype).numpy()
    return bool(np.all((value == mark) | (value != value)))


def _refused(name: str, source: str) -> GraphError:
    return GraphError(
        "the first value of a variable that a step creates depends on constants and other "
        f"variables alone. Got {name!r}, whose first value depends on {source}; create it before "
        "the step."
    )


def _value_in_branch(first: tf.Tensor) -> Any:
    """The value of a tensor in the branch of a conditional.

    Raises:
        GraphError: if it depends on tensors outside of the branch.
    """
    operations = before([first.op])
    if any(operation.type == "Placeholder" for operation in operations):
        raise _refused(first.name, "tensors outside of a conditional's branch")
    with tf.init_scope():
        (value,) = part_of(first.graph, operations, [], [first])()
        return value.numpy()


def _set(traced: func_graph.FuncGraph, firsts: Sequence[tuple[Any, tf.Tensor]]) -> None:
    operations = before(first.op for _, first in firsts)
    read = [pair for pair in traced.captures if pair[1].op in operations]
    values = part_of(
        traced, operations, [reader for _, reader in read], [first for _, first in firsts]
    )
    results = values(*(external for external, _ in read))
    for (variable, _), value in zip(firsts, results, strict=True):
        variable.assign(value, read_value=False)
