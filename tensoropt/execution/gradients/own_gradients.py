"""Gradients that a script gives by ``tf.custom_gradient``, made of a rank's tensors.

TensorFlow calls the gradient function when the rank's graph is differentiated, but the function
refers to tensors of the script's graph. So it is traced by itself, and its trace is imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.gradients.custom_gradients import registered_gradient
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, STANDS_FOR, references
from tensoropt.tensorflow_private import func_graph, ops

__all__ = ["PASSED_TO_GRADIENT", "gradient_reads", "registered_for_ranks"]

PASSED_TO_GRADIENT = "_tensoropt_passed_to_gradient"
"""Attribute of an IdentityN: how many of its last inputs are there for its gradient alone."""

_numbers = itertools.count()


def registered_for_ranks(operation: tf.Operation) -> str:
    """Register the gradient function of what stands for an operation on a rank.

    Args:
        operation: of the script, an IdentityN with a gradient of its own, which is whole on a rank.

    Returns:
        The name of the function, whose registration ends as those of others do
        (`custom_gradients.forgotten_afterwards`).
    """

    def gradient(own: tf.Operation, *upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        return _gradients(operation, own, upstream)

    name = f"TensorOptOwnGradient{next(_numbers)}"
    tf.RegisterGradient(name)(gradient)
    return name


def _gradients(
    operation: tf.Operation, own: tf.Operation, upstream: Sequence[tf.Tensor | None]
) -> list[tf.Tensor | None]:
    """By the inputs of a rank's operation.

    Raises:
        GraphError: if the script's function reads what the operation is not made of.
    """
    more = passed_to_gradient(operation)
    upstream = upstream[: len(upstream) - more]
    present = [each for each in upstream if each is not None]  # there is none by whole numbers
    traced = _traced(operation, upstream)
    given = {
        name: two
        for one, two in zip(operation.inputs, own.inputs, strict=True)
        for name in _names(one)
    }
    computed = {inner.name: at for at, inner in traced.captures if not _is_value(at)}
    outer = _recomputed(list(computed.values()), given, operation)
    mapped = {name: outer[external.name] for name, external in computed.items()}
    mapped |= {
        inner.name: tf.constant(at.numpy()) for at, inner in traced.captures if _is_value(at)
    }
    fed = [each for each in traced.inputs if each.name not in mapped]
    mapped |= {one.name: two for one, two in zip(fed, present, strict=True)}
    results = list(traced.structured_outputs)
    names = [each.name for each in results if each is not None]
    made = iter(_imported(traced.as_graph_def(), mapped, names))
    return [*(None if each is None else next(made) for each in results), *[None] * more]


def gradient_reads(operation: tf.Operation) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The tensors that a gradient of a script's own reads, and those that it is by.

    Args:
        operation: of the script, an IdentityN with a gradient of its own.

    Returns:
        The tensors that the gradient reads beside the operation's inputs and that a rank cannot
        compute again (variables are left out); the inputs that it gives a gradient by.
    """
    floating = [each if each.dtype.is_floating else None for each in operation.outputs]
    traced = _traced(operation, floating)
    given = {each.name for each in operation.inputs}
    read = [at for at, _ in traced.captures if not _is_value(at) and at.name not in given]
    passed = [each for each in read if each.dtype != tf.resource and _is_made_once(each.op, given)]
    results = traced.structured_outputs
    by = [one for one, two in zip(operation.inputs, results, strict=True) if two is not None]
    return passed, by


def passed_to_gradient(operation: tf.Operation) -> int:
    """How many inputs `PASSED_TO_GRADIENT` says that an operation has."""
    attributes = operation.node_def.attr
    return int(attributes[PASSED_TO_GRADIENT].i) if PASSED_TO_GRADIENT in attributes else 0


def _traced(operation: tf.Operation, upstream: Sequence[tf.Tensor | None]) -> func_graph.FuncGraph:
    """The graph of a gradient function, whose inputs are the gradients that are not None."""
    function = registered_gradient(operation.get_attr(OWN_GRADIENT).decode())

    def of_present(*values: tf.Tensor) -> list[tf.Tensor | None]:
        left = iter(values)
        given = [None if each is None else next(left) for each in upstream]
        return _dense(function(operation, *given))

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in upstream if each is not None]
    return func_graph.func_graph_from_py_func("own_gradient", of_present, specs, {})


def _is_made_once(operation: tf.Operation, given: set[str]) -> bool:
    """Whether a value depends on an operation that cannot run again to the same result."""
    waiting, seen = [operation], set()
    while waiting:
        each = waiting.pop()
        if _runs_once(each):
            return True
        seen.add(each.name)
        reads = [t.op for t in each.inputs if t.name not in given]
        waiting += [op for op in reads if op.name not in seen]
    return False


def _runs_once(operation: tf.Operation) -> bool:
    """Whether an operation feeds, reads a variable, draws, or calls a function."""
    is_fed = operation.type == "Placeholder"
    return is_fed or operation.op_def.is_stateful or any(references(operation.node_def.attr))


def _dense(gradients: Any) -> list[tf.Tensor | None]:
    """Gradients by rows of a table, too, as tensors; None where there is none."""
    found = gradients if isinstance(gradients, (list, tuple)) else [gradients]
    return [None if each is None else tf.convert_to_tensor(each) for each in found]


def _names(tensor: tf.Tensor) -> set[str]:
    """The names of a tensor of the script: its own, and that of the tensor it stands for."""
    attributes = tensor.op.node_def.attr
    before = {attributes[STANDS_FOR].s.decode()} if STANDS_FOR in attributes else set()
    return {tensor.name, *before}


def _is_value(captured: Any) -> bool:
    """Whether a captured object of a function is a value, and no tensor of a graph."""
    return isinstance(captured, ops.EagerTensor)


def _recomputed(
    wanted: Sequence[tf.Tensor], given: Mapping[str, tf.Tensor], operation: tf.Operation
) -> dict[str, tf.Tensor]:
    """A rank's tensors for some of the script's, by name, made of what is given by name."""
    missing = [each for each in wanted if each.name not in given]
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
                "a gradient of one's own is computed of what its function is given, and of "
                f"constants. Got one at {operation.name!r} that reads {each.name!r} of type "
                f"{each.type}; make that before the function and pass it, too."
            )
        node = definition.node.add()
        node.CopyFrom(each.node_def)
        data = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(data)
        read |= {t.name for t in each.inputs if t.name in given}
        waiting += [t.op for t in each.inputs if t.name not in given]
    mapped = {name: given[name] for name in read}
    made = _imported(definition, mapped, [each.name for each in missing])
    return {**given, **{each.name: value for each, value in zip(missing, made, strict=True)}}


def _imported(
    definition: Any, mapped: Mapping[str, tf.Tensor], names: Sequence[str]
) -> list[tf.Tensor]:
    fed = {f"^{name.partition(':')[0]}" for name in mapped}  # which are there
    for node in definition.node:
        inputs = [name for name in node.input if name not in fed]
        del node.input[:]
        node.input.extend(inputs)
    found: list[tf.Tensor] = tf.graph_util.import_graph_def(
        definition, input_map=dict(mapped), return_elements=list(names), name="own_gradient"
    )
    return found
