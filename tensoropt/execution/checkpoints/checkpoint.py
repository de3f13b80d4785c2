"""Checkpoints of variables in slices: each rank writes slices of its shards, and reads its shards.

The format is TensorFlow's. ``SaveV2`` writes slices of a tensor, and ``RestoreV2`` reads any other
slice from them. So every layout, and plain TensorFlow, can read a checkpoint. If several ranks hold
a slice, one of them writes it. Slices are small, because ``RestoreV2`` reads each written slice
whole even if it needs a part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import CheckpointError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.name_counters import equalise_name_counters
from tensoropt.execution.agreement.shared_outcome import do_on_all_ranks
from tensoropt.execution.checkpoints import files as files
from tensoropt.execution.checkpoints.copied_parts import PartMerger, PartWriter, callable_of
from tensoropt.execution.checkpoints.slices import (
    Part,
    SavedTensor,
    Slice,
    groups_of,
    parts_of,
    slices_of,
)
from tensoropt.execution.native.library import slice_copies
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.variable_access import write
from tensoropt.execution.world.variables import VariableStore

__all__ = ["SLICED_TYPES", "WRITE_REMEDY", "WRITE_RULE", "Checkpoints", "SavedTensor"]

SLICED_TYPES = frozenset(
    {"bfloat16", "bool", "complex128", "complex64", "float16", "float32", "float64"}
    | {"int16", "int32", "int64", "int8", "qint32", "qint8", "quint8", "uint8"}
)
"""Dtypes of tensors that TensorFlow reads in slices; it reads tensors of other dtypes whole."""

_NOTHING = "tensoropt/nothing"  # the tensor in a file without slices

WRITE_RULE = "every rank writes its part of a checkpoint."
WRITE_REMEDY = (
    "See that all ranks can write to the folder and that there is space; the previous checkpoint "
    "is still there."
)
_READ_RULE = "every rank reads its part of a checkpoint."
_READ_REMEDY = "See that all ranks can read the files and that these are whole, or take another."
_SHARED_RULE = "a checkpoint is in a folder that all ranks see."
_SHARED_REMEDY = "Give a folder in a file system that all machines share."


@dataclass(frozen=True, eq=False)
class _Writing:
    """The operations that write a checkpoint.

    Attributes:
        parts: the parts of all ranks.
        prefixes: the placeholders of file names, by number of a part that is emitted here.
        values: placeholders of values that are no variables, by name in the checkpoint.
        contents: the tensors, names and slices of a part, by number of a part that is emitted here.
        writes: the operations that write the parts of the ranks emitted here.
        merge: the operation that merges the parts, run on the first rank.
        part_names, whole_name: the placeholders of the names that `merge` reads and writes.
    """

    parts: list[Part]
    prefixes: dict[int, tf.Tensor]
    values: dict[str, tf.Tensor]
    contents: dict[int, tuple[list[tf.Tensor], list[str], list[str]]]
    writes: list[tf.Operation]
    merge: tf.Operation
    part_names: tf.Tensor
    whole_name: tf.Tensor
    _writers: dict[int, PartWriter] = field(default_factory=dict)
    _readers: dict[int, Callable[[], list[Any]]] = field(default_factory=dict)

    def fed(self, values: Mapping[str, Any]) -> dict[Any, Any]:
        """The values of the placeholders of `values`."""
        return {placeholder: values[name] for name, placeholder in self.values.items()}

    def copied(
        self, session: tf.compat.v1.Session, values: Mapping[str, Any]
    ) -> dict[int, Callable[[str], None]]:
        """Copy the parts that are emitted here. Return the functions that write them by number.

        Args:
            session: the session of the variables.
            values: the values of the placeholders.
        """
        if not self._writers:
            copy = slice_copies(says=0 in self.contents)  # the first rank's
            for number, (tensors, names, specs) in self.contents.items():
                dtypes = [tensor.dtype.base_dtype for tensor in tensors]
                self._writers[number] = PartWriter(names, specs, dtypes, copy)
                if names[0] not in self.values:
                    self._readers[number] = callable_of(session, fetched=tensors)
        copies = {}
        for number, (_, names, _) in self.contents.items():
            read = self._readers.get(number)
            arrays = [values[name] for name in names] if read is None else read()
            copies[number] = self._writers[number].copied([np.asarray(each) for each in arrays])
        return copies

    @cached_property
    def merger(self) -> PartMerger:
        """Merges the parts of copies."""
        return PartMerger()


class Checkpoints:
    """Saves and restores an executor's variables. All ranks make the same calls.

    Args:
        session: the session of the ranks emitted here.
        target: the graph of the session.
        ranks: the ranks emitted here.
        agreement: the agreement between all ranks.
    """

    def __init__(
        self, session: RankSession, target: tf.Graph, ranks: Sequence[int], agreement: Agreement
    ) -> None:
        self._session = session
        self._target = target
        self._ranks = tuple(ranks)
        self._agreement = agreement
        self._slices: dict[object, list[Slice]] = {}
        self._writings: dict[object, _Writing] = {}
        self._readings: dict[object, tuple[tf.Tensor, list[tf.Operation]]] = {}

    def save(
        self,
        saved: Sequence[SavedTensor],
        values: Mapping[str, np.ndarray[Any, Any]],
        prefix: str,
        variables: VariableStore,
    ) -> None:
        """Write a checkpoint, all of it or nothing (`tensoropt.execution.checkpoints.files`).

        Args:
            saved: the variables to save; all have values.
            values: whole values of tensors that are no variables, by name in the checkpoint.
            prefix: the checkpoint's name, an absolute path, the same on all ranks.
            variables: the store of the variables.

        Raises:
            CheckpointError: if a rank does not see the folder.
            tensorflow.errors.OpError: if a rank cannot write.
        """

        def write_parts() -> None:
            self._check_visible(files.folder(prefix), prefix)
            numbers = writing.prefixes.items()
            fed = writing.fed(values)
            fed |= {tensor: files.part(prefix, number) for number, tensor in numbers}
            if writing.writes:
                self._session.opened.run(writing.writes, fed)
            for number in writing.prefixes:
                files.sync(f"{files.part(prefix, number)}.data-00000-of-00001")

        def merge() -> None:
            parts = [files.part(prefix, number) for number in range(len(writing.parts))]
            for part, (rank, _) in zip(parts, writing.parts, strict=True):
                self._check_visible(f"{part}.index", prefix, f" of rank {rank}")
            fed = {writing.part_names: parts, writing.whole_name: files.whole(prefix)}
            self._session.opened.run(writing.merge, fed)
            files.publish(prefix)

        present = self._on_first("the start of a checkpoint", lambda: files.begin(prefix))
        try:
            writing = self._writing(saved, values, present, variables)
            self._on_all("the parts of a checkpoint", write_parts)
            self._on_first("the whole of a checkpoint", merge)
        except Exception:
            if self._is_first:
                files.tidy(prefix)
            raise

    def copied(
        self,
        saved: Sequence[SavedTensor],
        values: Mapping[str, np.ndarray[Any, Any]],
        prefix: str,
        variables: VariableStore,
    ) -> Callable[[threading.Event], None]:
        """Copy the slices of the ranks emitted here, to write them while the ranks go on.

        Args:
            saved, values, prefix, variables: arguments of `save`.

        Returns:
            The function that writes these slices, for a thread. It returns on every rank when the
            first rank has put the checkpoint in place. If its event is set, another rank has
            failed: the function returns, on the first rank after it has removed the files.

        Raises:
            tensorflow.errors.OpError: if the first rank cannot write.
        """
        present = self._on_first("the start of a checkpoint", lambda: files.begin(prefix))
        writing = self._writing(saved, values, present, variables)
        copies = writing.copied(self._session.opened, values)
        parts = [files.part(prefix, number) for number in range(len(writing.parts))]

        def write(has_failed: threading.Event) -> None:
            try:
                self._check_visible(files.folder(prefix), prefix)
                for number in list(copies):
                    copies.pop(number)(files.part(prefix, number))  # and frees the copy
                    files.mark_done(prefix, number)
                if not self._is_first:
                    files.wait_until_saved(prefix, has_failed)
                    return
                if not files.wait_for_parts(prefix, len(parts), has_failed):
                    files.tidy(prefix)
                    return
                writing.merger.merge(parts, files.whole(prefix))
                files.publish(prefix)
            except Exception:
                if self._is_first:
                    files.tidy(prefix)
                if not has_failed.is_set():  # else the other rank's error is raised
                    raise

        return write

    def restore(
        self,
        saved: Sequence[SavedTensor],
        prefix: str,
        variables: VariableStore,
        filled: Collection[str],
    ) -> None:
        """Read a checkpoint of TensorOpt or plain TensorFlow. Each rank reads its shards.

        Args:
            saved: the variables to restore; they need no values.
            prefix: the checkpoint's name.
            variables: the store of the variables.
            filled: names of variables that have values, whose memory is used again.

        Raises:
            tensorflow.errors.NotFoundError: if a tensor is not in the checkpoint; nothing is
                restored then.
            tensorflow.errors.InvalidArgumentError: if a tensor in the checkpoint has another shape
                or type; nothing is restored then.
            tensorflow.errors.OpError: if a rank cannot read.
        """
        filled = frozenset(tensor.variable for tensor in saved if tensor.variable in filled)
        key = tuple(saved), filled
        do_on_all_ranks(self._agreement, "the check of a checkpoint", lambda: _check(saved, prefix))
        if key not in self._readings:
            with self._emitting():
                self._readings[key] = self._emit_reading(saved, variables, filled)
        fed, operations = self._readings[key]

        def read() -> None:
            if operations:  # There are none in a pipeline's stage without variables.
                self._session.opened.run(operations, {fed: prefix})

        arguments = (_READ_RULE, _READ_REMEDY)
        do_on_all_ranks(self._agreement, "the restoring of a checkpoint", read, *arguments)

    @property
    def _is_first(self) -> bool:
        return 0 in self._ranks

    def _on_all(self, call: str, work: Callable[[], Any]) -> list[Any]:
        return do_on_all_ranks(self._agreement, call, work, WRITE_RULE, WRITE_REMEDY)

    def _on_first(self, call: str, work: Callable[[], Any]) -> Any:
        return self._on_all(call, lambda: work() if self._is_first else None)[0]

    def _check_visible(self, path: str, prefix: str, whose: str = "") -> None:
        if not files.is_visible(path):
            raise CheckpointError(
                f"{_SHARED_RULE} Got {prefix!r}: rank {self._ranks[0]} does not see the "
                f"part{whose}. {_SHARED_REMEDY}"
            )

    def _writing(
        self,
        saved: Sequence[SavedTensor],
        values: Mapping[str, np.ndarray[Any, Any]],
        present: int,
        variables: VariableStore,
    ) -> _Writing:
        dtypes = {name: value.dtype for name, value in values.items()}
        tensors = tuple(saved)
        if tensors not in self._slices:
            self._slices[tensors] = slices_of(saved, variables)
        parts = parts_of(self._slices[tensors], bool(values), present)
        key = tensors, tuple(dtypes.items()), len(parts)
        if key not in self._writings:
            with self._emitting():
                self._writings[key] = self._emit_writing(parts, dtypes, variables)
        return self._writings[key]

    @contextmanager
    def _emitting(self) -> Iterator[None]:
        """Emit operations that differ between ranks; names of later operations stay the same."""
        with self._target.as_default():
            yield
        equalise_name_counters(self._agreement, "the operations of a checkpoint")

    def _emit_writing(
        self, parts: list[Part], dtypes: Mapping[str, Any], variables: VariableStore
    ) -> _Writing:
        """Emit the operations that write the parts of the ranks emitted here."""
        prefixes, writes, contents = {}, [], {}
        placeholders: dict[str, tf.Tensor] = {}
        for number, (rank, slices) in enumerate(parts):
            if rank not in self._ranks:
                continue
            names = [cut.tensor.name for cut in slices]
            specs = [cut.spec for cut in slices]
            values = [cut.cut_from(variables.on(cut.tensor.variable, rank)) for cut in slices]
            if dtypes and number == 0:  # This part has no slices.
                placeholders = {n: tf.compat.v1.placeholder(d) for n, d in dtypes.items()}
                names, values = list(placeholders), list(placeholders.values())
            if not names:
                names, values = [_NOTHING], [tf.zeros([])]
            specs += [""] * (len(names) - len(specs))
            contents[number] = values, names, specs
            prefixes[number] = tf.compat.v1.placeholder(tf.string, [])
            writes.append(
                tf.raw_ops.SaveV2(
                    prefix=prefixes[number],
                    tensor_names=names,
                    shape_and_slices=specs,
                    tensors=values,
                )
            )
        part_names = tf.compat.v1.placeholder(tf.string, [len(parts)])
        whole_name = tf.compat.v1.placeholder(tf.string, [])
        merge = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=part_names, destination_prefix=whole_name, delete_old_dirs=False
        )
        return _Writing(
            parts, prefixes, placeholders, contents, writes, merge, part_names, whole_name
        )

    def _emit_reading(
        self, saved: Sequence[SavedTensor], variables: VariableStore, filled: Collection[str]
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """Emit the operations that read each rank's shards, a few at a time.

        Returns:
            The placeholder of the checkpoint's name, and the last operations.
        """
        last = []
        prefix = tf.compat.v1.placeholder(tf.string, [])
        for rank in self._ranks:
            assigned: list[tf.Operation] = []
            for group in groups_of([t for t in saved if variables.has(t.variable, rank)]):
                with tf.control_dependencies(assigned):
                    assigned = _emit_group(group, prefix, variables, filled, rank)
            last += assigned
        return prefix, last


def _emit_group(
    group: Sequence[SavedTensor],
    prefix: tf.Tensor,
    variables: VariableStore,
    filled: Collection[str],
    rank: int,
) -> list[tf.Operation]:
    """Emit the operations that read a rank's shards of some variables and assign them."""
    begins, extents = {}, {}
    for tensor in group:
        region = variables.region(tensor.variable, tensor.extents, rank)
        begins[tensor] = [span.start for span in region]
        extents[tensor] = [span.stop - span.start for span in region]
    values = {t: tf.zeros(extents[t], t.dtype) for t in group if 0 in t.extents}
    read = [tensor for tensor in group if tensor not in values]
    specs = [
        tensor.spec(begins[tensor], extents[tensor]) if tensor.dtype in SLICED_TYPES else ""
        for tensor in read
    ]
    if read:
        restored = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=[tensor.name for tensor in read],
            shape_and_slices=specs,
            dtypes=[tensor.dtype for tensor in read],
        )
        for tensor, value in zip(read, restored, strict=True):
            if tensor.dtype not in SLICED_TYPES:
                value = tf.slice(value, begins[tensor], extents[tensor])
            values[tensor] = value
    ends = []
    for tensor, value in values.items():
        value.set_shape(extents[tensor])
        end = write(variables.on(tensor.variable, rank), value)
        if tensor.variable in filled:
            # Since the value has another reader, it is copied into the old value's memory.
            with tf.control_dependencies([end]):
                end = tf.raw_ops.Shape(input=value).op
        ends.append(end)
    return ends


def _check(saved: Sequence[SavedTensor], prefix: str) -> None:
    """Raise unless a checkpoint has all tensors with their shapes and types."""
    reader = tf.train.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for tensor in saved:
        if tensor.name not in shapes:
            raise tf.errors.NotFoundError(
                None, None, f"Key {tensor.name} not found in checkpoint {prefix}"
            )
        dtype, shape = dtypes[tensor.name].name, tuple(shapes[tensor.name])
        if (dtype, shape) != (tensor.dtype, tensor.shape):
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                "a variable has the shape and type that it has in a checkpoint. Got for "
                f"{tensor.name!r} {tensor.dtype}{list(tensor.shape)}, but "
                f"{dtype}{list(shape)} in {prefix}",
            )
