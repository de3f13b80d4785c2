"""Copies of slices in this process's memory, which a thread writes while the steps go on.

The thread has sessions of its own. They run their operators in the calling thread, because
TensorFlow's threads compute the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.checkpoints import files as files
from tensoropt.execution.checkpoints.low_priority import at_low_priority
from tensoropt.tensorflow_private import session as session_module

__all__ = ["PartMerger", "PartWriter", "copied"]

Array = np.ndarray[Any, Any]

_ALIGNED_BYTES = 64  # TensorFlow takes an array without a copy if it begins at a multiple


class PartWriter:
    """Writes files of a checkpoint that have the same tensors.

    Its graph is made once: the steps wait for Python, which makes it.

    Args:
        names: the names of the tensors.
        specs: the slices of the tensors that the values are, as ``SaveV2`` takes them.
        dtypes: the dtypes of the values.
    """

    def __init__(self, names: Sequence[str], specs: Sequence[str], dtypes: Sequence[Any]) -> None:
        with tf.Graph().as_default():
            prefix = tf.compat.v1.placeholder(tf.string, [])
            values = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
            save = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=list(names),
                shape_and_slices=list(specs),
                tensors=values,
            )
            self._run = _callable(save, [prefix, *values])

    def write(self, path: str, values: Sequence[Array]) -> None:
        """Write a file, and wait until it is on the disk.

        Args:
            path: the name of the file, without its ending.
            values: the values.
        """
        at_low_priority(lambda: self._run(np.array(path, object), *values))
        files.sync(f"{path}.data-00000-of-00001")


class PartMerger:
    """Merges parts of checkpoints into one checkpoint."""

    def __init__(self) -> None:
        with tf.Graph().as_default():
            parts = tf.compat.v1.placeholder(tf.string, [None])
            whole = tf.compat.v1.placeholder(tf.string, [])
            merge = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=parts, destination_prefix=whole, delete_old_dirs=False
            )
            self._run = _callable(merge, [parts, whole])

    def merge(self, parts: Sequence[str], whole: str) -> None:
        """Merge parts into a checkpoint of the name `whole`."""
        at_low_priority(lambda: self._run(np.array(parts, object), np.array(whole, object)))


def _callable(operation: tf.Operation, fed: Sequence[tf.Tensor]) -> Callable[..., Any]:
    """Return a function that runs an operation, with the values of some placeholders."""
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0},
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=-1,  # runs in the calling thread
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    session = tf.compat.v1.Session(graph=operation.graph, config=config)
    options = session_module.config_pb2.CallableOptions()
    options.feed.extend(tensor.name for tensor in fed)
    options.target.append(operation.name)
    run: Callable[..., Any] = session._make_callable_from_options(options)
    return run


def copied(value: Array) -> Array:
    """Return a copy of an array that TensorFlow can take as it is."""
    if value.dtype == object:
        return value.copy()
    room = np.empty(value.nbytes + _ALIGNED_BYTES, np.uint8)
    start = -room.ctypes.data % _ALIGNED_BYTES
    copy: Array = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy
