"""Attributes of a TensorFlow operation as plain Python values."""

from __future__ import annotations

import hashlib
from typing import Any

import tensorflow as tf

__all__ = [
    "GRADIENT_OF",
    "OWN_GRADIENT",
    "ROWS_ATTRIBUTE",
    "STANDS_FOR",
    "python_attribute",
    "python_attributes",
]

GRADIENT_OF = "_tensoropt_gradient_of"
"""Of an operation that a tape has made: which operator it computes the gradient of."""
ROWS_ATTRIBUTE = "_tensoropt_rows"
"""Attribute of a call of a function that computes each row by itself: for every input, then every
output, the dimension that counts rows, -1 where there is none."""

OWN_GRADIENT = "_gradient_op_type"
"""Attribute of an operation that is differentiated by another function than its type's, with the
function's name, as `tf.custom_gradient` gives it to an IdentityN."""


STANDS_FOR = "_tensoropt_stands_for"
"""Attribute of an Identity that has replaced an output of another operator: its name, by which what
a script has kept of its own graph knows it."""


def python_attributes(operation: tf.Operation) -> dict[str, object]:
    """An operation's attributes by name, without those that begin with an underscore but
    `ROWS_ATTRIBUTE` and, of an IdentityN, whether it has an `OWN_GRADIENT`, whose name differs from
    process to process."""
    given = operation.node_def.attr
    found = {
        name: python_attribute(value)
        for name, value in given.items()
        if not name.startswith("_") or name == ROWS_ATTRIBUTE
    }
    if operation.type == "IdentityN" and OWN_GRADIENT in given:
        found[OWN_GRADIENT] = True
    return found


def python_attribute(value: tf.compat.v1.AttrValue) -> object:
    """An attribute as a plain Python value: types by name, shapes and lists as tuples, tensors as
    digests."""
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
    if kind == "tensor":  # of text, mostly: numbers are folded, and known by their value
        return hashlib.sha256(value.tensor.SerializeToString(deterministic=True)).hexdigest()
    return None


def _shape(proto: Any) -> tuple[int, ...] | None:
    shape = tf.TensorShape(proto)
    return None if shape.rank is None else tuple(-1 if n is None else n for n in shape.as_list())
