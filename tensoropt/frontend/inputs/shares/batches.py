"""Operators that make batches, other than ``batch`` itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.operators import constant, kind

__all__ = ["largest_batch", "makes_batches"]

_BATCHING = frozenset({"BatchDatasetV2", "PaddedBatchDatasetV2", "ParallelBatchDataset"})

_CHOOSES = frozenset(
    {"Cast", "Const", "GatherV2", "Identity", "NoOp", "Pack", "Placeholder", "StridedSlice"}
)
"""Operators that choose one of several constants."""


def makes_batches(dataset: Any) -> bool:
    """Whether all components of a data set's elements have a row for each example."""
    if kind(dataset) != "GroupByWindowDataset":
        return kind(dataset) == "PaddedBatchDataset"
    tensor = dataset._reduce_func.function.graph.outputs[0]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.type in _BATCHING


def largest_batch(dataset: Any) -> int | None:
    """The largest number of rows that a data set's elements can have; None if it is unknown."""
    if kind(dataset) == "PaddedBatchDataset":
        return constant(dataset._batch_size)
    first = tf.nest.flatten(dataset.element_spec)[0].shape
    if first.rank and first[0] is not None:
        return int(first[0])
    if kind(dataset) != "GroupByWindowDataset":
        return None
    function = dataset._window_size_func.function
    operators = function.graph.get_operations()
    if any(operation.type not in _CHOOSES for operation in operators):
        return None
    inside = [tf.get_static_value(op.outputs[0]) for op in operators if op.type == "Const"]
    known = [*inside, *(tensor.numpy() for tensor in function.captured_inputs)]
    return max((int(np.max(value)) for value in known), default=None)
