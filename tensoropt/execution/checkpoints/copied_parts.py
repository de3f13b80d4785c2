"""Copies of slices in this process's memory, which a thread writes while the steps go on.

The thread has a session of its own. The session runs its operators in the calling thread, because
TensorFlow's threads compute the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.checkpoints import files as files
from tensoropt.execution.checkpoints.low_priority import at_low_priority
from tensoropt.tensorflow_private import session as session_module

__all__ = ["CopiedPart", "merge_parts"]

Array = np.ndarray[Any, Any]

_ALIGNED_BYTES = 64  # TensorFlow takes an array without a copy if it begins at a multiple


@dataclass(frozen=True, slots=True, eq=False)
class CopiedPart:
    """The content of one file of a checkpoint.

    Attributes:
        path: the name of the file, without its ending.
        names: the names of the tensors.
        specs: the slices of the tensors that the values are, as ``SaveV2`` takes them.
        values: the values.
    """

    path: str
    names: Sequence[str]
    specs: Sequence[str]
    values: Sequence[Array]

    @classmethod
    def of(
        cls, path: str, names: Sequence[str], specs: Sequence[str], values: Sequence[Array]
    ) -> CopiedPart:
        """Copy the values, which may be the memory of variables."""
        return cls(path, names, specs, [_copied(np.asarray(value)) for value in values])

    def write(self) -> None:
        """Write the file, and wait until it is on the disk."""
        with tf.Graph().as_default():
            placeholders = [
                tf.compat.v1.placeholder(tf.as_dtype(value.dtype), value.shape)
                if value.dtype != object
                else tf.compat.v1.placeholder(tf.string, value.shape)
                for value in self.values
            ]
            save = tf.raw_ops.SaveV2(
                prefix=self.path,
                tensor_names=list(self.names),
                shape_and_slices=list(self.specs),
                tensors=placeholders,
            )
            _run(save, dict(zip(placeholders, self.values, strict=True)))
        files.sync(f"{self.path}.data-00000-of-00001")


def merge_parts(parts: Sequence[str], whole: str) -> None:
    """Merge parts of a checkpoint into one checkpoint of the name `whole`."""
    with tf.Graph().as_default():
        merge = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=list(parts), destination_prefix=whole, delete_old_dirs=False
        )
        _run(merge, {})


def _run(operation: tf.Operation, feed: dict[Any, Any]) -> None:
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0},
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=-1,  # runs in the calling thread
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.compat.v1.Session(config=config) as session:
        options = session_module.config_pb2.CallableOptions()
        options.feed.extend(tensor.name for tensor in feed)
        options.target.append(operation.name)
        run = session._make_callable_from_options(options)
        at_low_priority(lambda: run(*feed.values()))


def _copied(value: Array) -> Array:
    """Return a copy of an array that TensorFlow can take as it is."""
    if value.dtype == object:
        return value.copy()
    room = np.empty(value.nbytes + _ALIGNED_BYTES, np.uint8)
    start = -room.ctypes.data % _ALIGNED_BYTES
    copy: Array = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy
