"""Copies of slices in this process's memory, which a thread writes while the steps go on.

TensorFlow writes the first copy of a part. Later ones have the same index but for the checksums,
and are written with fewer passes over memory: the copy, which computes the checksums, and the
disk's read of it.

The thread has sessions of its own. They run their operators in the calling thread, because
TensorFlow's threads compute the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.checkpoints import files as files
from tensoropt.execution.checkpoints import unbuffered
from tensoropt.execution.checkpoints.low_priority import at_low_priority
from tensoropt.execution.checkpoints.part_index import PartIndex
from tensoropt.tensorflow_private import session as session_module

__all__ = ["PartMerger", "PartWriter", "callable_of"]

Array = np.ndarray[Any, Any]

_ALIGNED_BYTES = 64  # TensorFlow takes an array without a copy if it begins at a multiple


class PartWriter:
    """Copies and writes parts of checkpoints that have the same tensors.

    Its graph is made once: the steps wait for Python, which makes it.

    Args:
        names: the names of the tensors.
        specs: the slices of the tensors that the values are, as ``SaveV2`` takes them.
        dtypes: the dtypes of the values.
        copy: ``tensoropt_copy_slices`` of `execution.native`; None to let TensorFlow write always.
    """

    def __init__(
        self, names: Sequence[str], specs: Sequence[str], dtypes: Sequence[Any], copy: Any
    ) -> None:
        with tf.Graph().as_default() as graph:
            prefix = tf.compat.v1.placeholder(tf.string, [])
            values = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
            save = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=list(names),
                shape_and_slices=list(specs),
                tensors=values,
            )
            self._run = callable_of(_calm_session(graph), [prefix, *values], targets=[save])
        self._names = list(names)
        self._copy: Any = None if tf.string in dtypes else copy
        self._index: PartIndex | None = None
        self._forms: list[tuple[Any, tuple[int, ...]]] = []

    def copied(self, values: Sequence[Array]) -> Callable[[str], None]:
        """Copy values. Return the function that writes them, and waits until they are on the disk.

        It takes the name of a file, without its ending.
        """
        index = self._index
        if index is None or _forms(values) != self._forms:
            copies = [_copied(value) for value in values]
            return lambda path: self._write(path, copies)
        size = sum(value.nbytes for value in values)
        pages = unbuffered.pages_for(size)
        checksums = self._copied_to(pages, index.offsets, values)
        content = index.with_checksums(checksums, self._checksum)

        def write(path: str) -> None:
            at_low_priority(lambda: unbuffered.write(_data(path), pages, size))
            unbuffered.give_back(pages)
            files.sync(_data(path))
            with open(f"{path}.index", "wb") as file:
                file.write(content)

        return write

    def _write(self, path: str, values: Sequence[Array]) -> None:
        """Let TensorFlow write a part, and keep its index."""
        at_low_priority(lambda: self._run(np.array(path, object), *values))
        files.sync(_data(path))
        if self._copy is None or files.is_of_service(path):
            return
        with open(f"{path}.index", "rb") as file:
            content = file.read()
        self._forms = _forms(values)
        self._index = PartIndex.of(content, self._names, [value.nbytes for value in values])

    def _copied_to(self, pages: Array, offsets: Array, values: Sequence[Array]) -> Array:
        """Copy values to places in some memory. Return their checksums."""
        values = [np.ascontiguousarray(value) for value in values]
        starts = np.array([value.ctypes.data for value in values], np.uint64)
        places = offsets.astype(np.uint64) + np.uint64(pages.ctypes.data)
        sizes = np.array([value.nbytes for value in values], np.int64)
        checksums = np.empty(len(values), np.uint32)
        arrays = (starts, places, sizes, checksums)
        self._copy(len(values), *(array.ctypes.data for array in arrays))
        return checksums

    def _checksum(self, content: Array) -> int:
        return int(self._copied_to(np.empty_like(content), np.zeros(1, np.int64), [content])[0])


class PartMerger:
    """Merges parts of checkpoints into one checkpoint."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            parts = tf.compat.v1.placeholder(tf.string, [None])
            whole = tf.compat.v1.placeholder(tf.string, [])
            merge = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=parts, destination_prefix=whole, delete_old_dirs=False
            )
            self._run = callable_of(_calm_session(graph), [parts, whole], targets=[merge])

    def merge(self, parts: Sequence[str], whole: str) -> None:
        """Merge parts into a checkpoint of the name `whole`."""
        at_low_priority(lambda: self._run(np.array(parts, object), np.array(whole, object)))


def callable_of(
    session: tf.compat.v1.Session,
    fed: Sequence[tf.Tensor] = (),
    fetched: Sequence[tf.Tensor] = (),
    targets: Sequence[tf.Operation] = (),
) -> Callable[..., Any]:
    """Return a function that runs part of a session's graph.

    It takes the values of some tensors and returns those of others. On a CPU these lie in the
    memory of TensorFlow's tensors; `Session.run` copies them.
    """
    options = session_module.config_pb2.CallableOptions()
    options.feed.extend(tensor.name for tensor in fed)
    options.fetch.extend(tensor.name for tensor in fetched)
    options.target.extend(operation.name for operation in targets)
    run: Callable[..., Any] = session._make_callable_from_options(options)
    return run


def _calm_session(graph: tf.Graph) -> tf.compat.v1.Session:
    """Return a session that runs its operators in the calling thread."""
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=-1
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.compat.v1.Session(graph=graph, config=config)


def _copied(value: Array) -> Array:
    """Return a copy of an array that TensorFlow can take as it is."""
    if value.dtype == object:
        return value.copy()
    room = np.empty(value.nbytes + _ALIGNED_BYTES, np.uint8)
    start = -room.ctypes.data % _ALIGNED_BYTES
    copy: Array = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy


def _forms(values: Sequence[Array]) -> list[tuple[Any, tuple[int, ...]]]:
    """Return what an index says of the values besides checksums: their dtypes and shapes."""
    return [(value.dtype, value.shape) for value in values]


def _data(path: str) -> str:
    return f"{path}.data-00000-of-00001"
