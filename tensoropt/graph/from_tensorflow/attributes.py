"""Attributes of a TensorFlow operation as plain Python values, and the reverse."""

from __future__ import annotations

import hashlib
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Operator
from tensoropt.tensorflow_private import op_def_registry

__all__ = [
    "GRADIENT_OF",
    "OWN_GRADIENT",
    "ROWS_ATTRIBUTE",
    "STANDS_FOR",
    "local_attribute",
    "python_attribute",
    "python_attributes",
    "synthetic_attributes",
]

GRADIENT_OF = "_tensoropt_gradient_of"
"""Attribute of an operation that a tape has made: the operator whose gradient it computes."""
ROWS_ATTRIBUTE = "_tensoropt_rows"
"""Attribute of a call of a function that computes each row independently: for every input, then for
every output, the dimension that counts rows, or -1."""

OWN_GRADIENT = "_gradient_op_type"
"""Attribute of an operation with another gradient function than its type's. Its value is the name
of the function, as `tf.custom_gradient` gives it to an IdentityN."""


STANDS_FOR = "_tensoropt_stands_for"
"""Attribute of an Identity that has replaced an output of another operator: the name of that
output, by which the script's own objects refer to it."""


def python_attributes(operation: tf.Operation) -> dict[str, object]:
    """Return an operation's attributes by name.

    Attributes that begin with an underscore are left out, except `ROWS_ATTRIBUTE`. An IdentityN
    with an `OWN_GRADIENT` has the value True for it, since the function's name differs between
    processes.
    """
    node_attributes = operation.node_def.attr
    attributes = {
        name: python_attribute(value)
        for name, value in node_attributes.items()
        if not name.startswith("_") or name == ROWS_ATTRIBUTE
    }
    if operation.type == "IdentityN" and OWN_GRADIENT in node_attributes:
        attributes[OWN_GRADIENT] = True
    return attributes


def python_attribute(value: tf.compat.v1.AttrValue) -> object:
    """Return an attribute as a plain Python value.

    Types become names, shapes and lists tuples, and tensors digests.
    """
    kind = value.WhichOneof("value")
    if kind == "s":
        return value.s.decode("utf-8", "backslashreplace")
    if kind in ("i", "f", "b"):
        return getattr(value, kind)
    if kind == "type":
        return str(tf.dtypes.as_dtype(value.type).name)
    if kind == "shape":
        return _shape(value.shape)
    if kind == "list":
        items = value.list
        return tuple(
            [text.decode("utf-8", "backslashreplace") for text in items.s]
            + [*items.i, *items.f, *items.b]
            + [str(tf.dtypes.as_dtype(code).name) for code in items.type]
            + [_shape(shape) for shape in items.shape]
        )
    if kind == "func":
        return value.func.name
    if kind == "tensor":  # mostly text, since numbers are folded and compared by value
        return hashlib.sha256(value.tensor.SerializeToString(deterministic=True)).hexdigest()
    return None


def _shape(proto: Any) -> tuple[int, ...] | None:
    shape = tf.TensorShape(proto)
    return None if shape.rank is None else tuple(-1 if n is None else n for n in shape.as_list())


def synthetic_attributes(operator: Operator) -> dict[str, tf.compat.v1.AttrValue]:
    """TensorFlow's attributes of an operator that is not in the script."""
    attributes = {}
    for definition in op_def_registry.get(operator.type).attr:
        if definition.name in operator.attributes:
            value = operator.attributes[definition.name]
            attribute = tf.compat.v1.AttrValue()
            if definition.type == "type":
                attribute.type = tf.as_dtype(value).as_datatype_enum
            elif definition.type == "bool":
                attribute.b = bool(value)
            elif definition.type == "string":
                attribute.s = str(value).encode()
            elif definition.type == "list(int)":
                assert isinstance(value, tuple), "whole numbers"
                attribute.list.SetInParent()
                attribute.list.i.extend(value)
            else:
                attribute.i = int(str(value))
            attributes[definition.name] = attribute
    return attributes


def local_attribute(value: object, original: tf.compat.v1.AttrValue) -> tf.compat.v1.AttrValue:
    """Return a value as an attribute of TensorFlow, of the same type as the script's attribute.

    Raises:
        GraphError: if the value is not a shape, a number or a list of numbers.
    """
    attribute = tf.compat.v1.AttrValue()
    if original.WhichOneof("value") == "shape":
        attribute.shape.CopyFrom(tf.TensorShape(value).as_proto())
    elif isinstance(value, bool):
        attribute.b = value
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, (list, tuple)):
        attribute.list.i.extend(value)
    else:
        raise GraphError(
            f"a local attribute is a shape, an integer or a list of integers. Got {value!r}."
        )
    return attribute
