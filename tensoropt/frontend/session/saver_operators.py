"""What the operators of a saver save and restore, read off the script's graph.

Savers come from scripts, from hooks, and from imported graphs; all have left operators behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from tensoropt.execution.checkpoints.checkpoint import SLICED_TYPES
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.graph.operator import VARIABLE_TYPES

__all__ = ["Saved", "restored_by", "saved_by"]

# What a saver makes names of files with; savers of the older format have others.
_NAMING = frozenset(
    {"Const", "Identity", "MergeV2Checkpoints", "NoOp", "Pack", "Placeholder"}
    | {"PlaceholderWithDefault", "RegexFullMatch", "Select", "SelectV2", "ShardedFilename"}
    | {"StaticRegexFullMatch", "StringJoin"}
)


class Saved(NamedTuple):
    """What a saver saves.

    Attributes:
        variables: as they are.
        others: further tensors of the graph, by name in the checkpoint.
    """

    variables: tuple[SavedTensor, ...]
    others: Mapping[str, str]


def saved_by(graph: tf.Graph, fetched: str) -> Saved | None:
    """What is saved where a saver's tensor is fetched; None where that cannot be told."""
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
    """The variables that a saver's operator restores; None where that is not all it does.

    Args:
        graph: the script's.
        operation: name of the operator.
        filename: name of the tensor with the checkpoint's name.
    """
    found = []
    for each in _parts(graph.get_operation_by_name(operation)):
        restored = _restored(each, filename)
        if restored is None:
            return None
        found.append(restored)
    return tuple(found)


def _entries(operation: tf.Operation) -> list[tuple[str, str]] | None:
    """Of an operator on a checkpoint: names, and slices of tensors; None if they are computed."""
    values = [tf.get_static_value(tensor) for tensor in operation.inputs[1:3]]
    if any(value is None for value in values):
        return None
    names, specs = ([text.decode() for text in value.reshape(-1)] for value in values)
    return list(zip(names, specs, strict=True))


def _variable(tensor: tf.Tensor) -> tf.Operation | None:
    """The variable whose value a tensor is, at whatever time it is read."""
    operation = tensor.op
    while operation.type in ("Identity", "ReadVariableOp") and not operation.control_inputs:
        operation = operation.inputs[0].op
    return operation if operation.type in VARIABLE_TYPES else None


def _saved(variable: tf.Operation, name: str, spec: str) -> SavedTensor | None:
    """A variable as a slice in a checkpoint; None if the slice has not its shape."""
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


def _parts(operation: tf.Operation) -> Iterator[tf.Operation]:
    """What an operator waits for that groups others, and those again."""
    if operation.type != "NoOp":
        yield operation
        return
    for each in sorted(operation.control_inputs, key=lambda control: str(control.name)):
        yield from _parts(each)


def _restored(operation: tf.Operation, filename: str) -> SavedTensor | None:
    """The variable that an operator restores as it is; None if it does anything else."""
    if operation.type not in ("Assign", "AssignVariableOp") or operation.control_inputs:
        return None
    variable, value = operation.inputs[0].op, operation.inputs[1]
    while value.op.type in ("Identity", "Reshape") and not value.op.control_inputs:
        value = value.op.inputs[0]  # to the variable's shape, where a saver reshapes
    if variable.type not in VARIABLE_TYPES or value.op.type != "RestoreV2":
        return None
    entries = _entries(value.op)
    if entries is None or value.op.inputs[0].name != filename:
        return None
    return _saved(variable, *entries[value.value_index])
