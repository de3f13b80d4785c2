"""Which variables a traced step captures, and which it creates.

A step creates variables as a ``tf.function`` does: what the trace computes of their first values is
lifted out of it.
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
    """Let a function's graph know of variables that are never read, too: a kernel that updates
    them, as of tf_keras's older optimizers, is given their handles alone."""
    kind = resource_variable_ops.BaseResourceVariable
    found: dict[int, Any] = {}

    def handle(variable: Any) -> Any:
        found[id(variable._handle)] = variable
        return variable._handle

    original = kind.handle
    kind.handle = property(handle)
    try:
        yield
    finally:
        kind.handle = original
    with traced.as_default():  # a handle is asked for, not the value that it may stand for
        known = {id(each._handle) for each in traced.variables}
    captured = [id(external) for external, _ in traced.captures]
    more = [found[each] for each in captured if each in found and each not in known]
    traced.variables = [*traced.variables, *more]


class CreatedVariables:
    """The variables that a trace creates.

    A first value that is a tensor of the trace cannot be read while the step is traced. The
    variable begins with a mark then, and `initialize` computes its first value after the trace,
    unless a checkpoint has given it one. In the branch of a conditional the first value is computed
    at once.

    Args:
        traced: the graph of the step.

    Attributes:
        names: of the variables, in the order of their creation.
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
        """Give the variables the first values that the trace has computed.

        Raises:
            GraphError: if one depends on the step's arguments.
        """
        captured = {internal.op for _, internal in traced.captures}
        given = {each.op for each in traced.inputs} - captured
        handles = {id(external): internal.op for external, internal in traced.captures}
        unset = [(variable, first) for variable, first in self._lifted if _is_unset(variable)]
        waiting = [(variable, first, before([first.op])) for variable, first in unset]
        for variable, _, needed in waiting:
            if not given.isdisjoint(needed):
                raise _refused(variable.name, "the step's arguments")
        while waiting:
            later = {handles.get(id(variable.handle)) for variable, _, _ in waiting}
            ready = [each for each in waiting if later.isdisjoint(each[2])] or waiting
            _set(traced, [(variable, first) for variable, first, _ in ready])
            done = {id(each) for each in ready}
            waiting = [each for each in waiting if id(each) not in done]


def _mark(dtype: tf.DType) -> tf.Tensor:
    """A value that no script gives a variable, for types that have one; else zero."""
    if dtype.is_floating or dtype.is_complex:
        return tf.cast(np.nan, dtype)
    return tf.constant(dtype.min, dtype) if dtype.is_integer else tf.zeros([], dtype)


def _is_unset(variable: Any) -> bool:
    """Whether a variable still has the mark, and no checkpoint has given it that value."""
    if getattr(variable, "_update_uid", -1) >= 0:  # the number of TensorFlow's last restore
        return False
    value = variable.read_value().numpy()
    mark = _mark(variable.dtype).numpy()
    return bool(np.all((value == mark) | (value != value)))


def _refused(name: str, source: str) -> GraphError:
    return GraphError(
        "a variable that a step creates begins with what follows from constants and other "
        f"variables. Got {name!r}, which begins with what follows from {source}; create it before "
        "the step."
    )


def _value_in_branch(first: tf.Tensor) -> Any:
    """The value of a tensor in the branch of a conditional.

    Raises:
        GraphError: if the branch does not compute it of constants.
    """
    operations = before([first.op])
    if any(each.type == "Placeholder" for each in operations):
        raise _refused(first.name, "tensors outside of a conditional's branch")
    with tf.init_scope():
        (value,) = part_of(first.graph, operations, [], [first])()
        return value.numpy()


def _set(traced: func_graph.FuncGraph, firsts: Sequence[tuple[Any, tf.Tensor]]) -> None:
    operations = before(first.op for _, first in firsts)
    read = [pair for pair in traced.captures if pair[1].op in operations]
    values = part_of(traced, operations, [each for _, each in read], [each for _, each in firsts])
    found = values(*(external for external, _ in read))
    for (variable, _), value in zip(firsts, found, strict=True):
        variable.assign(value, read_value=False)
