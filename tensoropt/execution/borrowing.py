"""An operator that knows whole variables only, run where they are stored in pieces.

It borrows: each rank fills a variable of its own with the whole value, the operator works on
that, and what it changed is cut back into the pieces.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.functions import Functions, called_functions

__all__ = ["Loan", "borrow", "may_write", "read_pieces", "write"]

_WRITES = re.compile(r"^(Assign|Destroy|Resource(?!Gather)|Scatter|.*Apply)")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """A variable borrowed on every rank emitted here.

    Attributes:
        handles: the borrowed variables, to be given to the operator.
        filled: per rank the operation that fills it; None where it stays without a value.
    """

    handles: list[tf.Tensor]
    filled: list[tf.Operation | None]

    def values(self, after: Sequence[tf.Operation]) -> list[tf.Tensor]:
        """The whole value on each rank, after these operations."""
        found = []
        for handle, operation in zip(self.handles, after, strict=True):
            with tf.control_dependencies([operation]):
                found.append(_read(handle))
        return found


def borrow(shape: Sequence[int], dtype: tf.DType, wholes: list[tf.Tensor] | int) -> Loan:
    """A variable per rank that holds the whole value; without one for that many ranks.

    Args:
        shape: the variable's.
        dtype: of its handle or reference: ``tf.resource`` with the values' dtype, or a ``_ref``.
        wholes: the whole value on each rank, or the number of ranks.
    """
    count = wholes if isinstance(wholes, int) else len(wholes)
    handles = [_variable(shape, dtype) for _ in range(count)]
    if isinstance(wholes, int):
        return Loan(handles, [None] * count)
    return Loan(handles, [write(h, w) for h, w in zip(handles, wholes, strict=True)])


def write(variable: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assign to a handle or a reference."""
    if variable.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=variable, value=value)
    return tf.raw_ops.Assign(ref=variable, value=value).op


def read_pieces(pieces: Sequence[tf.Tensor], dtype: tf.DType) -> list[tf.Tensor]:
    """The values behind handles (of that dtype) or references."""
    return [
        tf.raw_ops.ReadVariableOp(resource=piece, dtype=dtype)
        if piece.dtype == tf.resource
        else tf.identity(piece)
        for piece in pieces
    ]


def _variable(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    name = f"borrowed{next(_numbers)}"
    if dtype._is_ref_dtype:
        return tf.raw_ops.VariableV2(shape=shape, dtype=dtype.base_dtype, shared_name=name)
    return tf.raw_ops.VarHandleOp(shape=shape, dtype=dtype, shared_name=name)


def _read(handle: tf.Tensor) -> tf.Tensor:
    if handle.dtype != tf.resource:
        return tf.identity(handle)
    dtype = tf.as_dtype(handle.op.get_attr("dtype"))
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def may_write(functions: Functions, operation: tf.Operation) -> bool:
    """Whether an operator may change a variable, looking into the functions that it calls."""
    if operation.type == "ReadVariableOp" or operation.type.startswith("ResourceGather"):
        return False
    called = called_functions(operation.node_def.attr)
    if not called:
        return True
    bodies = [functions[name] for name in functions.closure(called)]
    return any(_WRITES.match(node.op) for body in bodies for node in body.node_def)
