"""Gradient functions of a script's ``tf.custom_gradient``, applied to a rank's tensors.

TensorFlow calls the gradient function when the rank's graph is differentiated, but the function
refers to tensors of the script's graph. Therefore the function is traced into a graph of its own,
and that graph is imported into the rank's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.gradient_functions.custom_gradients import registered_gradient
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, STANDS_FOR, references
from tensoropt.tensorflow_private import func_graph, ops

__all__ = ["PASSED_TO_GRADIENT", "gradient_reads", "registered_for_ranks"]

PASSED_TO_GRADIENT = "_tensoropt_passed_to_gradient"
"""Attribute of an IdentityN: how many of its inputs, the last ones, only its gradient reads."""

_numbers = itertools.count()


def registered_for_ranks(operation: tf.Operation) -> str:
    """Register a gradient function for the operations that ranks have in place of the script's.

    Args:
        operation: an IdentityN of the script with a gradient of its own. It is not split.

    Returns:
        The name of the function. `custom_gradients.forgotten_afterwards` ends its registration.
    """

    def gradient(on_rank: tf.Operation, *upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        return _gradients(operation, on_rank, upstream)

    name = f"TensorOptOwnGradient{next(_numbers)}"
    tf.RegisterGradient(name)(gradient)
    return name


def _gradients(
    operation: tf.Operation, on_rank: tf.Operation, upstream: Sequence[tf.Tensor | None]
) -> list[tf.Tensor | None]:
    """Return the gradients by the inputs of a rank's operation.

    Raises:
        GraphError: if the script's function reads a tensor that the rank cannot compute.
    """
    passed_count = passed_to_gradient(operation)
    upstream = upstream[: len(upstream) - passed_count]
    present = [each for each in upstream if each is not None]  # Integers have no gradients.
    traced = _traced(operation, upstream)
    available = {
        name: shard
        for tensor, shard in zip(operation.inputs, on_rank.inputs, strict=True)
        for name in _names(tensor)
    }
    captured = {inner.name: outer for outer, inner in traced.captures if not _is_value(outer)}
    computed = _recomputed(list(captured.values()), available, operation)
    mapped = {name: computed[outer.name] for name, outer in captured.items()}
    mapped |= {
        inner.name: tf.constant(outer.numpy())
        for outer, inner in traced.captures
        if _is_value(outer)
    }
    fed = [placeholder for placeholder in traced.inputs if placeholder.name not in mapped]
    mapped |= {placeholder.name: value for placeholder, value in zip(fed, present, strict=True)}
    results = list(traced.structured_outputs)
    names = [result.name for result in results if result is not None]
    imported = iter(_imported(traced.as_graph_def(), mapped, names))
    gradients = (None if result is None else next(imported) for result in results)
    return [*gradients, *[None] * passed_count]


def gradient_reads(operation: tf.Operation) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return the tensors to pass to a custom gradient function, and the inputs with gradients.

    Args:
        operation: an IdentityN of the script with a gradient of its own.

    Returns:
        The tensors that the gradient reads besides the operation's inputs, and that a rank cannot
        compute again (variables are left out); the operation's inputs that have a gradient.
    """
    floating = [each if each.dtype.is_floating else None for each in operation.outputs]
    traced = _traced(operation, floating)
    inputs = {tensor.name for tensor in operation.inputs}
    read = [t for t, _ in traced.captures if not _is_value(t) and t.name not in inputs]
    passed = [t for t in read if t.dtype != tf.resource and _is_made_once(t.op, inputs)]
    results = traced.structured_outputs
    pairs = zip(operation.inputs, results, strict=True)
    return passed, [tensor for tensor, gradient in pairs if gradient is not None]


def passed_to_gradient(operation: tf.Operation) -> int:
    """The number of inputs of an operation that only its gradient reads."""
    attributes = operation.node_def.attr
    return int(attributes[PASSED_TO_GRADIENT].i) if PASSED_TO_GRADIENT in attributes else 0


def _traced(operation: tf.Operation, upstream: Sequence[tf.Tensor | None]) -> func_graph.FuncGraph:
    """Trace a gradient function. The graph's inputs are the gradients that are not None."""
    function = registered_gradient(operation.get_attr(OWN_GRADIENT).decode())

    def of_present(*values: tf.Tensor) -> list[tf.Tensor | None]:
        remaining = iter(values)
        arguments = [None if each is None else next(remaining) for each in upstream]
        return _dense(function(operation, *arguments))

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in upstream if each is not None]
    return func_graph.func_graph_from_py_func("own_gradient", of_present, specs, {})


def _is_made_once(operation: tf.Operation, inputs: set[str]) -> bool:
    """Whether a result may be another one when the operations that it depends on run again.

    Args:
        operation: computes the result.
        inputs: names of tensors at which the look-up ends.
    """
    waiting, seen = [operation], set()
    while waiting:
        each = waiting.pop()
        if _runs_once(each):
            return True
        seen.add(each.name)
        reads = [t.op for t in each.inputs if t.name not in inputs]
        waiting += [op for op in reads if op.name not in seen]
    return False


def _runs_once(operation: tf.Operation) -> bool:
    """Whether an operation is a placeholder, reads a variable, draws, or calls a function."""
    is_fed = operation.type == "Placeholder"
    return is_fed or operation.op_def.is_stateful or any(references(operation.node_def.attr))


def _dense(gradients: Any) -> list[tf.Tensor | None]:
    """Return gradients as dense tensors; None stays None."""
    listed = gradients if isinstance(gradients, (list, tuple)) else [gradients]
    return [None if each is None else tf.convert_to_tensor(each) for each in listed]


def _names(tensor: tf.Tensor) -> set[str]:
    """A tensor's own name, and the name of the script's tensor that it stands for, if any."""
    attributes = tensor.op.node_def.attr
    original = {attributes[STANDS_FOR].s.decode()} if STANDS_FOR in attributes else set()
    return {tensor.name, *original}


def _is_value(captured: Any) -> bool:
    """Whether an object that a function captured is an eager value, not a tensor of a graph."""
    return isinstance(captured, ops.EagerTensor)


def _recomputed(
    wanted: Sequence[tf.Tensor], available: Mapping[str, tf.Tensor], operation: tf.Operation
) -> dict[str, tf.Tensor]:
    """Compute tensors of the script on a rank.

    Args:
        wanted: the tensors of the script.
        available: tensors of the rank, by the name of the script's tensor.
        operation: the operation of the script whose gradient reads them, for errors.

    Returns:
        The rank's tensors, by the name of the script's; those that are available, too.

    Raises:
        GraphError: if a tensor depends on an operation that must not run again.
    """
    missing = [each for each in wanted if each.name not in available]
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = tf.version.GRAPH_DEF_VERSION
    waiting, seen, read = [each.op for each in missing], set(), set()
    while waiting:
        each = waiting.pop()
        if each.name in seen:
            continue
        seen.add(each.name)
        if _runs_once(each):
            raise GraphError(
                "a custom gradient is computed from the arguments of its function, and from "
                f"constants. Got one at {operation.name!r} that reads {each.name!r} of type "
                f"{each.type}; compute that before the function and pass it, too."
            )
        node = definition.node.add()
        node.CopyFrom(each.node_def)
        data = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(data)
        read |= {t.name for t in each.inputs if t.name in available}
        waiting += [t.op for t in each.inputs if t.name not in available]
    mapped = {name: available[name] for name in read}
    names = [tensor.name for tensor in missing]
    return {**available, **dict(zip(names, _imported(definition, mapped, names), strict=True))}


def _imported(
    definition: Any, mapped: Mapping[str, tf.Tensor], names: Sequence[str]
) -> list[tf.Tensor]:
    """Import a graph definition, and return its tensors of some names.

    Args:
        definition: the graph definition, which this changes.
        mapped: tensors to take in place of tensors of the definition, by name.
        names: the names of the tensors to return.
    """
    replaced = {f"^{name.partition(':')[0]}" for name in mapped}
    for node in definition.node:
        inputs = [name for name in node.input if name not in replaced]
        del node.input[:]
        node.input.extend(inputs)
        node.device = ""  # Ranks have devices of their own, and not all operations of the script.
        node.attr.pop("_class", None)
    tensors: list[tf.Tensor] = tf.graph_util.import_graph_def(
        definition, input_map=dict(mapped), return_elements=list(names), name="own_gradient"
    )
    return tensors
