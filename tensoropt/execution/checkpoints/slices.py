"""The slices of a checkpoint, the ranks that write them, and the tensors that are read at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

import tensorflow as tf

from tensoropt.execution.checkpoints.memory_groups import groups_within
from tensoropt.execution.world.variable_access import read_shards
from tensoropt.execution.world.variables import VariableStore

__all__ = ["Part", "SavedTensor", "Slice", "batches_of", "groups_of", "parts_of", "slices_of"]

_SLICE_BYTES = 16 << 20  # the most of a slice, and of the tensors that are read at once
_ALIGNED_BYTES = 64  # TensorFlow cuts rows off without a copy if they begin at a multiple


@dataclass(frozen=True)
class SavedTensor:
    """A variable in a checkpoint.

    Attributes:
        name: the name of the tensor in the checkpoint.
        variable: the name of the variable's operator.
        dtype: the dtype of the values.
        extents: the shape of the variable.
        shape: the shape of the tensor in the checkpoint; a partitioned variable is a slice of it.
        start: the position in this tensor at which the variable begins.
    """

    name: str
    variable: str
    dtype: str
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(tf.as_dtype(self.dtype).size)

    def spec(self, begin: Sequence[int], extents: Sequence[int]) -> str:
        """Return a region of the variable as ``shape_and_slices`` says it; empty for all of it.

        Args:
            begin: the position in the variable at which the region begins.
            extents: the shape of the region.
        """
        if tuple(extents) == self.shape:
            return ""
        starts = (of_variable + at for of_variable, at in zip(self.start, begin, strict=True))
        pairs = (f"{at},{n}" for at, n in zip(starts, extents, strict=True))
        return f"{' '.join(map(str, self.shape))} {':'.join(pairs)}"


class Slice(NamedTuple):
    """Rows of a rank's shard.

    Attributes:
        tensor: the variable.
        rank: the rank that writes the slice.
        begin: the position in the variable at which the shard begins.
        extents: the shape of the shard.
        first: the first row of the slice in the shard; 0 for a scalar.
        rows: the number of rows; 1 for a scalar.
    """

    tensor: SavedTensor
    rank: int
    begin: tuple[int, ...]
    extents: tuple[int, ...]
    first: int
    rows: int

    @property
    def is_rowless(self) -> bool:
        """Whether there are no rows to cut, because the variable is a scalar or empty."""
        return not self.extents or 0 in self.tensor.extents

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the slice."""
        return self.tensor.extents if self.is_rowless else (self.rows, *self.extents[1:])

    @property
    def region(self) -> tuple[slice, ...]:
        """The region of the variable that the slice is."""
        if self.is_rowless:
            return (slice(None),) * len(self.extents)
        return tuple(slice(at, at + n) for at, n in zip(self._start, self.shape, strict=True))

    @property
    def spec(self) -> str:
        return "" if self.is_rowless else self.tensor.spec(self._start, self.shape)

    @property
    def _start(self) -> tuple[int, ...]:
        return (self.begin[0] + self.first, *self.begin[1:])

    def halves(self) -> list[Slice]:
        half = self.rows // 2
        return [
            self._replace(rows=half),
            self._replace(first=self.first + half, rows=self.rows - half),
        ]

    def cut_from(self, shard: tf.Tensor) -> tf.Tensor:
        """Return the slice's values. They lie in the shard's memory if the rows are aligned."""
        if 0 in self.tensor.extents:
            return tf.zeros(self.tensor.extents, self.tensor.dtype)
        (value,) = read_shards([shard], tf.as_dtype(self.tensor.dtype))
        if not self.extents or self.rows == self.extents[0]:
            return value
        later = len(self.extents) - 1  # dimensions
        return tf.slice(value, [self.first] + [0] * later, [self.rows] + [-1] * later)


class Part(NamedTuple):
    """The slices that one rank writes to one file."""

    rank: int
    slices: list[Slice]


def slices_of(
    saved: Sequence[SavedTensor], variables: VariableStore, is_spread: bool = True
) -> list[Slice]:
    """Return the slices of some variables, each once.

    Args:
        saved: the variables.
        variables: the store of the variables.
        is_spread: whether the slices are spread evenly over the ranks that hold them; else a slice
            is of the lowest of these ranks.
    """
    loads: dict[int, int] = defaultdict(int)  # bytes by rank
    slices = []
    for tensor in saved:
        layout, world = variables.layouts[tensor.variable], variables.worlds[tensor.variable]
        holders: dict[int, list[int]] = {}
        for device in world.mesh:
            piece = world.mesh.piece(device, layout.axes)
            holders.setdefault(piece, []).append(world.first + device)
        for ranks in [[world.first]] if 0 in tensor.extents else holders.values():
            region = variables.region(tensor.variable, tensor.extents, ranks[0])
            begin = tuple(span.start for span in region)
            extents = tuple(span.stop - span.start for span in region)
            row_bytes = tensor.itemsize * prod(extents[1:])
            for first, rows in _cut(extents, row_bytes):
                rank = min(ranks, key=loads.__getitem__) if is_spread else ranks[0]
                loads[rank] += rows * row_bytes
                slices.append(Slice(tensor, rank, begin, extents, first, rows))
    return slices


def _cut(extents: Sequence[int], row_bytes: int) -> list[tuple[int, int]]:
    """Divide a shard into runs of rows. Return the first row and the number of rows of each."""
    if 0 in extents or not extents:
        return [(0, extents[0] if extents else 1)]
    step = _ALIGNED_BYTES // gcd(_ALIGNED_BYTES, row_bytes)
    most = max(step, _SLICE_BYTES // row_bytes // step * step)
    return [(first, min(most, extents[0] - first)) for first in range(0, extents[0], most)]


def parts_of(slices: Sequence[Slice], has_values: bool, present: int) -> list[Part]:
    """Return the contents of each file. The number of files differs from `present`.

    Args:
        slices: the slices of all ranks.
        has_values: whether the first rank writes values that are no variables, to the first file.
        present: the number of files of the checkpoint that is overwritten; 0 for none.
    """
    by_rank: dict[int, list[Slice]] = {}
    for cut in slices:
        by_rank.setdefault(cut.rank, []).append(cut)
    parts = [Part(0, [])] if has_values else []
    parts += [Part(rank, by_rank[rank]) for rank in sorted(by_rank)]
    if len(parts) != present:
        return parts
    longest = max(parts, key=lambda part: len(part.slices)).slices
    if len(longest) == 1 and longest[0].rows > 1:
        longest[:] = longest[0].halves()
    if len(longest) > 1:
        last = longest.pop()
        return [*parts, Part(last.rank, [last])]
    return [*parts, Part(0, [])]


def batches_of(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Divide slices, in order, into batches that are in memory at once."""
    return groups_within(
        _SLICE_BYTES, slices, lambda cut: cut.tensor.itemsize * cut.rows * prod(cut.extents[1:])
    )


def groups_of(saved: Sequence[SavedTensor]) -> list[list[SavedTensor]]:
    """Divide variables into groups that are read at once, by the bytes of their whole tensors.

    Each rank may have to read a tensor whole, for example one that plain TensorFlow wrote.
    """
    return groups_within(_SLICE_BYTES, saved, lambda each: prod(each.shape) * each.itemsize)
