"""TensorFlow's attributes of an emitted operator: the script's, with some local values."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import tensorflow as tf

from tensoropt.execution.gradient_functions.own_gradients import registered_for_ranks
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, local_attribute, synthetic_attributes
from tensoropt.graph.operator import CHANGED, Operator
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["name_state", "tensorflow_attributes"]

_DROPPED = frozenset({"_class", "_output_shapes"})

Attributes = dict[str, tf.compat.v1.AttrValue]


def tensorflow_attributes(
    script: tf.Graph, operator: Operator, local: Mapping[int | str, object]
) -> Attributes:
    """Return the attributes with which an operator's kernel is created, by name.

    Args:
        script: the script's graph.
        operator: an operator of this graph, or one that the importer added.
        local: the values of attributes that differ on a shard, see `local_form`.

    Raises:
        GraphError: if a local value is not a shape, a number or a list of numbers.
    """
    attributes = (
        synthetic_attributes(operator) if operator.synthetic else _of_script(script, operator)
    )
    changed = operator.attributes.get(CHANGED, ())
    assert isinstance(changed, tuple), "names of attributes"
    changes = {name: operator.attributes[name] for name in changed if name in attributes}
    for key, value in {**changes, **local}.items():
        if isinstance(key, str):
            attributes[key] = local_attribute(value, attributes[key])
    return attributes


def name_state(operation: tf.Operation, name: str, rank: int) -> None:
    """Name the state of an operator (a table, a queue), so that all programs of a rank share it.

    State without a name has the name of its operator in TensorFlow, and that differs between
    programs. Variables have names already.

    Args:
        operation: the emitted operation.
        name: the name of the script's operator.
        rank: the rank. Ranks in one process must not share state.
    """
    if "shared_name" not in _names_of(operation.type) or operation.get_attr("shared_name"):
        return
    operation._set_attr("shared_name", tf.compat.v1.AttrValue(s=f"{name}@{rank}".encode()))


@functools.cache
def _names_of(kind: str) -> frozenset[str]:
    definition = op_def_registry.get(kind)
    return frozenset(each.name for each in definition.attr) if definition else frozenset()


def _of_script(script: tf.Graph, operator: Operator) -> Attributes:
    operation = script.get_operation_by_name(operator.script_name)
    attributes = operation.node_def.attr.items()
    kept = {name: value for name, value in attributes if name not in _DROPPED}
    if operation.type == "IdentityN" and OWN_GRADIENT in kept:
        name = registered_for_ranks(operation)
        kept[OWN_GRADIENT] = tf.compat.v1.AttrValue(s=name.encode())
    return kept
