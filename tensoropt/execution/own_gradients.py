"""Gradients that a script gives by ``tf.custom_gradient``, made of a rank's tensors.

Such a function is called when what a rank runs is differentiated, and refers to tensors of the
graph that it was written in. So it is traced by itself, and what it gives is imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.custom_gradients import registered_gradient
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, STANDS_FOR, references
from tensoropt.tensorflow_private import func_graph, ops

__all__ = ["registered_for_ranks"]

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
    function = registered_gradient(operation.get_attr(OWN_GRADIENT).decode())
    present = [each for each in upstream if each is not None]  # there is none by whole numbers

    def of_present(*values: tf.Tensor) -> list[tf.Tensor | None]:
        left = iter(values)
        return _dense(function(own, *(None if each is None else next(left) for each in upstream)))

    specs = [tf.TensorSpec(each.shape, each.dtype) for each in present]
    traced = func_graph.func_graph_from_py_func("own_gradient", of_present, specs, {})
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
    return [None if each is None else next(made) for each in results]


def _dense(gradients: Any) -> list[tf.Tensor | None]:
    """Gradients by rows of a table, too, as tensors; None where there is none."""
    found = gradients if isinstance(gradients, (list, tuple)) else [gradients]
    return [None if each is None else tf.convert_to_tensor(each) for each in found]


def _names(tensor: tf.Tensor) -> set[str]:
    """Of a tensor of the script, and of what it was before it was separated from others."""
    attributes = tensor.op.node_def.attr
    before = {attributes[STANDS_FOR].s.decode()} if STANDS_FOR in attributes else set()
    return {tensor.name, *before}


def _is_value(captured: Any) -> bool:
    """Whether what a function refers to is no tensor of a graph, but has its value."""
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
        # What it makes cannot be computed again, or not to the same: variables, random numbers.
        if (
            each.type == "Placeholder"
            or each.op_def.is_stateful
            or any(references(each.node_def.attr))
        ):
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
