"""The tensors that a saver's operators save and restore, read from the script's graph.

Scripts, hooks and imported graphs make savers; each saver leaves its operators in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from tensoropt.execution.checkpoints.checkpoint import SLICED_TYPES
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.graph.operator import VARIABLE_TYPES

__all__ = ["Saved", "restored_by", "saved_by"]

# Operators with which a saver computes file names; savers of the older format use other ones.
_NAMING = frozenset(
    {"Const", "Identity", "MergeV2Checkpoints", "NoOp", "Pack", "Placeholder"}
    | {"PlaceholderWithDefault", "RegexFullMatch", "Select", "SelectV2", "ShardedFilename"}
    | {"StaticRegexFullMatch", "StringJoin"}
)


class Saved(NamedTuple):
    """The tensors that a saver saves.

    Attributes:
        variables: the variables, and their names and slices in the checkpoint.
        others: names of further tensors of the graph, by name in the checkpoint.
    """

    variables: tuple[SavedTensor, ...]
    others: Mapping[str, str]


def saved_by(graph: tf.Graph, fetched: str) -> Saved | None:
    """The tensors that fetching a saver's tensor saves; None where the graph does not tell."""
    variables, others = [], {}
    waiting, seen = [graph.get_tensor_by_name(fetched).op], set()
    while waiting:
        operation = waiting.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        named_by = list(operation.inputs)
        if operation.type == "SaveV2":
            entries = _entries(operation)
            if entries is None:
                return None
            for (name, spec), tensor in zip(entries, named_by[3:], strict=True):
                variable = _variable(tensor)
                saved = None if variable is None else _saved(variable, name, spec)
                if saved is not None and saved.dtype in SLICED_TYPES:
                    variables.append(saved)
                elif spec or tensor.dtype in (tf.variant, tf.resource):
                    return None
                else:
                    others[name] = str(tensor.name)
            named_by = named_by[:1]
        elif operation.type not in _NAMING:
            return None
        waiting += [*(tensor.op for tensor in named_by), *operation.control_inputs]
    return Saved(tuple(variables), others)


def restored_by(graph: tf.Graph, operation: str, filename: str) -> tuple[SavedTensor, ...] | None:
    """The variables that a saver's operator restores; None if the operator does anything else too.

    Args:
        graph: the script's graph.
        operation: the operator's name.
        filename: the name of the tensor with the checkpoint's name.
    """
    variables = []
    for assignment in _ungrouped(graph.get_operation_by_name(operation)):
        restored = _restored(assignment, filename)
        if restored is None:
            return None
        variables.append(restored)
    return tuple(variables)


def _entries(operation: tf.Operation) -> list[tuple[str, str]] | None:
    """The names and slices of a save or restore operator; None if the graph computes them."""
    values = [tf.get_static_value(tensor) for tensor in operation.inputs[1:3]]
    if any(value is None for value in values):
        return None
    names, specs = ([text.decode() for text in value.reshape(-1)] for value in values)
    return list(zip(names, specs, strict=True))


def _variable(tensor: tf.Tensor) -> tf.Operation | None:
    """The variable whose value a tensor is; None if it is computed from a variable."""
    operation = tensor.op
    while operation.type in ("Identity", "ReadVariableOp") and not operation.control_inputs:
        operation = operation.inputs[0].op
    return operation if operation.type in VARIABLE_TYPES else None


def _saved(variable: tf.Operation, name: str, spec: str) -> SavedTensor | None:
    """A variable as a slice in a checkpoint; None if the slice has another shape."""
    shape = tf.TensorShape(variable.get_attr("shape"))
    if not shape.is_fully_defined():
        return None
    extents = tuple(int(n) for n in shape)
    whole, start = extents, (0,) * len(extents)
    if spec:
        *dims, slices = spec.split(" ")
        pairs = [part.split(",") for part in slices.split(":")]
        if len(dims) != len(extents) or len(pairs) != len(extents):
            return None
        whole = tuple(map(int, dims))
        start = tuple(0 if pair == ["-"] else int(pair[0]) for pair in pairs)
        lengths = tuple(
            n if pair == ["-"] else int(pair[1]) for pair, n in zip(pairs, whole, strict=True)
        )
        if lengths != extents:
            return None
    dtype = tf.as_dtype(variable.get_attr("dtype")).base_dtype.name
    return SavedTensor(name, str(variable.name), dtype, extents, whole, start)


def _ungrouped(operation: tf.Operation) -> Iterator[tf.Operation]:
    """Control dependencies of an operator, looked up through operators that only group."""
    if operation.type != "NoOp":
        yield operation
        return
    for member in sorted(operation.control_inputs, key=lambda control: str(control.name)):
        yield from _ungrouped(member)


def _restored(operation: tf.Operation, filename: str) -> SavedTensor | None:
    """The variable that an operator restores unchanged; None if it does anything else."""
    if operation.type not in ("Assign", "AssignVariableOp") or operation.control_inputs:
        return None
    variable, value = operation.inputs[0].op, operation.inputs[1]
    while value.op.type in ("Identity", "Reshape") and not value.op.control_inputs:
        value = value.op.inputs[0]  # a saver may reshape to the variable's shape
    if variable.type not in VARIABLE_TYPES or value.op.type != "RestoreV2":
        return None
    entries = _entries(value.op)
    if entries is None or value.op.inputs[0].name != filename:
        return None
    return _saved(variable, *entries[value.value_index])
