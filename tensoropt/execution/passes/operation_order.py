"""The order of operations of an emitted graph: that in which they were made, but for loops."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["in_order_of_data"]


def in_order_of_data(operations: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Operations so that each comes after those of them that it reads.

    They are made in such an order, but a loop that is differentiated gets inputs that are made
    later: these, and what they read, are moved before it.
    """
    left = dict.fromkeys(operations)
    found: list[tf.Operation] = []
    for first in operations:
        waiting = [first]
        while waiting:
            operation = waiting[-1]
            missing = [each.op for each in operation.inputs if each.op in left]
            if operation not in left or not missing:
                waiting.pop()
                if operation in left:
                    del left[operation]
                    found.append(operation)
            else:
                waiting += missing
    return found
