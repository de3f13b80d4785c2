"""Tables and strings in a step: the operators that depend on them run before it and are fed to it.

A table belongs to the script's process, and no plan splits strings. Keras's ``StringLookup``,
``TextVectorization`` and ``Hashing`` turn a step's arguments into numbers. This part of the step
runs first, eagerly: on every rank for the whole batch, or for the rank's rows where it takes
elements one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.world.shares import Share
from tensoropt.frontend.definitions.nodes import before, part_of
from tensoropt.graph.from_tensorflow import GRADIENT_OF
from tensoropt.tdl import types_with
from tensoropt.tensorflow_private import func_graph

__all__ = ["Lookups", "lookups_of"]

_SHAPES = types_with(role="reads shapes")
"""Plans read shapes: shapes of the step's arguments are computed in the step."""

_BY_ELEMENT = frozenset(
    {"AsString", "Cast", "Identity", "LookupTableFind", "LookupTableFindV2", "RegexReplace"}
    | {"StaticRegexReplace", "StringLength", "StringLower", "StringStrip", "StringToHashBucket"}
    | {"StringToHashBucketFast", "StringToHashBucketStrong", "StringToNumber", "StringUpper"}
)
"""Types of operators that compute an element of their output from the same element of an input."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """The part of a step that runs before it.

    Attributes:
        nodes: names of the part's operators.
        outputs: specs of the tensors that the step reads of the part, by name.
        feeds: numbers of the step's inputs that the part reads.
        unread: names of the inputs that only the part reads.
        call: the function from the values of ``feeds`` to those of ``outputs``.
        sources: for each output the number of the step's input whose rows it has; None if an output
            needs whole batches.
    """

    nodes: frozenset[str]
    outputs: Mapping[str, tf.TensorSpec]
    feeds: tuple[int, ...]
    unread: frozenset[str]
    call: Any
    sources: tuple[int, ...] | None

    def values(self, given: Sequence[Any]) -> list[Any]:
        """The values of the outputs.

        Args:
            given: all arrays and shares that the step is called with. Shares need ``sources``.
        """
        if not self.outputs:
            return []
        read = [given[number] for number in self.feeds]
        results = tf.nest.flatten(self.call(*map(_tensor, read)))
        arrays = [np.asarray(result) for result in results]
        if not any(isinstance(value, Share) for value in read):
            return arrays
        assert self.sources is not None
        like = [given[number] for number in self.sources]
        return [
            Share(value.rows, array, value.size) if isinstance(value, Share) else array
            for value, array in zip(like, arrays, strict=True)
        ]


def lookups_of(traced: func_graph.FuncGraph, variables: Mapping[int, Any]) -> Lookups:
    """The part of a traced step that reads tables or strings, with the operators that it needs.

    Args:
        traced: the step.
        variables: the variables that it captures, by the identity of their handles.

    Raises:
        GraphError: if a lookup depends on a variable, or the step captures a resource that is not a
            table (an iterator, a list of tensors).
    """
    _check_tables(traced, variables)
    captured = {internal.op: external for external, internal in traced.captures}
    inputs = [tensor for tensor in traced.inputs if tensor.op not in captured]
    handles = {operation for operation, external in captured.items() if id(external) in variables}
    core = _core(traced, {tensor.op for tensor in inputs}, handles)
    if not core:
        return Lookups(frozenset(), {}, (), frozenset(), None, ())
    needed = before(core)
    outputs, reached = _read_of(traced, core, needed)
    feeds = tuple(number for number, tensor in enumerate(inputs) if tensor.op in needed)
    unread = [inputs[number].op for number in feeds if inputs[number].op not in reached]
    constant = [tensor for tensor in captured if tensor in needed]
    read = [inputs[number] for number in feeds] + [operation.outputs[0] for operation in constant]
    function = part_of(traced, needed, read, outputs)
    values = [captured[operation] for operation in constant]
    return Lookups(
        frozenset(str(operation.name) for operation in needed),
        {output.name: tf.TensorSpec(output.shape, output.dtype) for output in outputs},
        feeds,
        frozenset(str(operation.name) for operation in unread),
        lambda *given: function(*given, *values),
        _sources(outputs, inputs),
    )


def _tensor(value: Any) -> tf.Tensor:
    array = value.value if isinstance(value, Share) else value
    is_text = isinstance(array, np.ndarray) and array.dtype == object
    return tf.convert_to_tensor(array, tf.string if is_text else None)


def _sources(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> tuple[int, ...] | None:
    """For each output the number of the input whose rows it has; None if there is none."""
    numbers = {tensor.op: number for number, tensor in enumerate(inputs)}
    found = []
    for tensor in outputs:
        while tensor.op not in numbers:
            read = [t for t in tensor.op.inputs if not before([t.op]).isdisjoint(numbers)]
            is_alike = len(read) == 1 and tensor.shape.rank and _like(read[0], tensor)
            if tensor.op.type not in _BY_ELEMENT or not is_alike:
                return None
            tensor = read[0]
        found.append(numbers[tensor.op])
    return tuple(found)


def _check_tables(traced: func_graph.FuncGraph, variables: Mapping[int, Any]) -> None:
    """Check that captured resources are variables, or tables that only lookups read.

    Raises:
        GraphError: see `lookups_of`.
    """
    captured = [(internal, id(external) in variables) for external, internal in traced.captures]
    handles = {internal.op for internal, is_variable in captured if is_variable}
    for internal, is_variable in captured:
        if is_variable or internal.dtype not in (tf.resource, tf.variant):
            continue
        for consumer in internal.consumers():
            is_lookup = consumer.type.startswith("LookupTable") and consumer.outputs
            if not is_lookup or not handles.isdisjoint(before([consumer])):
                raise _refused(internal)


def _core(
    traced: func_graph.FuncGraph, inputs: set[tf.Operation], handles: set[tf.Operation]
) -> set[tf.Operation]:
    """Operators that look up in tables or read strings, and operators that depend on them as long
    as values decide shapes (the number of words of a text).
    """
    given, late = set(inputs), set(handles)
    core: set[tf.Operation] = set()
    loose: set[tf.Operation] = set()
    for operation in traced.get_operations():
        sources = {tensor.op for tensor in operation.inputs}
        looks_up = operation.type.startswith("LookupTable")
        if not late.isdisjoint(sources) or (operation.op_def.is_stateful and not looks_up):
            late.add(operation)
            continue
        if not given.isdisjoint(sources):
            given.add(operation)
        is_loose = not loose.isdisjoint(sources)
        if not operation.outputs or (operation.type in _SHAPES and not is_loose):
            continue
        strings = [
            tensor
            for tensor in operation.inputs
            if tensor.dtype == tf.string and tensor.op in given
        ]
        follows = is_loose and all(map(_is_whole, operation.outputs))
        if looks_up or strings or (follows and GRADIENT_OF not in operation.node_def.attr):
            core.add(operation)
            changes = strings and any(not _like(tensor, strings[0]) for tensor in operation.outputs)
            if (is_loose or changes) and not all(map(_is_settled, operation.outputs)):
                loose.add(operation)
    return core


def _is_whole(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.dtype == tf.string)


def _like(tensor: tf.Tensor, other: tf.Tensor) -> bool:
    """Whether two tensors have the same shape, as far as the trace knows their shapes."""
    return tensor.shape.rank is not None and str(tensor.shape) == str(other.shape)


def _is_settled(tensor: tf.Tensor) -> bool:
    """Whether a tensor has a row of known shape for each example."""
    rank = tensor.shape.rank
    return rank is not None and rank > 1 and tensor.shape[1:].is_fully_defined()


def _read_of(
    traced: func_graph.FuncGraph, core: set[tf.Operation], left_out: set[tf.Operation]
) -> tuple[list[tf.Tensor], set[tf.Operation]]:
    """The tensors that the step reads of the part before it, and the step's own operators."""
    returned = tf.nest.flatten(traced.structured_outputs, expand_composites=True)
    tensors = [value for value in returned if tf.is_tensor(value)]
    read: dict[str, tf.Tensor] = {tensor.name: tensor for tensor in tensors if tensor.op in core}
    waiting = [tensor.op for tensor in tensors]
    waiting += [operation for operation in traced.control_outputs if operation not in left_out]
    reached: set[tf.Operation] = set()
    while waiting:
        operation = waiting.pop()
        if operation in core or operation in reached:
            continue
        reached.add(operation)
        waiting += [control for control in operation.control_inputs if control not in left_out]
        waiting += [tensor.op for tensor in operation.inputs]
        read |= {tensor.name: tensor for tensor in operation.inputs if tensor.op in core}
    return [read[name] for name in sorted(read)], reached


def _refused(internal: tf.Tensor) -> GraphError:
    for consumer in internal.consumers():
        if consumer.type.startswith("Write") and consumer.type.endswith("Summary"):
            return GraphError(
                "a step computes, and the script writes summaries. Got tf.summary in a step, "
                f"{consumer.name!r}; return the value, and write its summary afterwards."
            )
    return GraphError(
        "a step captures variables, tensors, and tables that look up its arguments. Got another "
        f"resource, {internal.name!r}, for example an iterator, a list of tensors or a table that "
        "is changed; pass the values that it gives to the step as an argument."
    )
