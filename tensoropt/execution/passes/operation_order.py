"""The order of operations of an emitted graph: the order of creation, except for loops."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["in_order_of_data"]


def in_order_of_data(operations: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Order operations so that each comes after the operations that it reads.

    Operations are created in this order, except for loops: when a loop is differentiated, it gets
    inputs that are created after it. These, and the operations that they read, are moved before it.
    """
    left = dict.fromkeys(operations)
    ordered: list[tf.Operation] = []
    for first in operations:
        waiting = [first]
        while waiting:
            operation = waiting[-1]
            missing = [each.op for each in operation.inputs if each.op in left]
            if operation not in left or not missing:
                waiting.pop()
                if operation in left:
                    del left[operation]
                    ordered.append(operation)
            else:
                waiting += missing
    return ordered
