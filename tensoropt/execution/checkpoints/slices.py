"""Which slices a checkpoint is of, who writes each, and what is read together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

import tensorflow as tf

from tensoropt.execution.edges.whole_variables import read_shards
from tensoropt.execution.world.variables import VariableStore

__all__ = ["Part", "SavedTensor", "Slice", "groups_of", "parts_of", "slices_of"]

_SLICE_BYTES = 16 << 20  # of a slice, and of the tensors that are read at once
_ALIGNED_BYTES = 64  # TensorFlow cuts rows off without a copy where these begin so


@dataclass(frozen=True)
class SavedTensor:
    """A variable as a checkpoint has it.

    Attributes:
        name: of the tensor in the checkpoint.
        variable: name of its operator.
        dtype: of its values.
        extents: its shape.
        shape: of the whole tensor, of which a partitioned variable is a slice.
        start: where in that the variable begins.
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
        """A part of the variable as ``shape_and_slices`` has it; empty for a whole tensor."""
        if tuple(extents) == self.shape:
            return ""
        starts = (at + own for at, own in zip(self.start, begin, strict=True))
        pairs = (f"{at},{n}" for at, n in zip(starts, extents, strict=True))
        return f"{' '.join(map(str, self.shape))} {':'.join(pairs)}"


class Slice(NamedTuple):
    """Rows of a rank's shard.

    Attributes:
        tensor: that it is of.
        rank: that writes it.
        begin: of the shard in the variable.
        extents: of the shard.
        first, rows: which, along its first dimension; of a scalar 0 and 1.
    """

    tensor: SavedTensor
    rank: int
    begin: tuple[int, ...]
    extents: tuple[int, ...]
    first: int
    rows: int

    @property
    def spec(self) -> str:
        if not self.extents or 0 in self.tensor.extents:
            return ""
        begin = (self.begin[0] + self.first, *self.begin[1:])
        return self.tensor.spec(begin, (self.rows, *self.extents[1:]))

    def halves(self) -> list[Slice]:
        half = self.rows // 2
        return [
            self._replace(rows=half),
            self._replace(first=self.first + half, rows=self.rows - half),
        ]

    def cut_from(self, shard: tf.Tensor) -> tf.Tensor:
        """Its values, in the shard's own memory where rows are aligned."""
        if 0 in self.tensor.extents:
            return tf.zeros(self.tensor.extents, self.tensor.dtype)
        (value,) = read_shards([shard], tf.as_dtype(self.tensor.dtype))
        if not self.extents or self.rows == self.extents[0]:
            return value
        others = len(self.extents) - 1
        return tf.slice(value, [self.first] + [0] * others, [self.rows] + [-1] * others)


class Part(NamedTuple):
    """The slices that one rank writes to one file."""

    rank: int
    slices: list[Slice]


def slices_of(saved: Sequence[SavedTensor], variables: VariableStore) -> list[Slice]:
    """Every slice of some variables once, divided by bytes over the ranks that hold it."""
    loads: dict[int, int] = defaultdict(int)
    found = []
    for tensor in saved:
        layout, world = variables.layouts[tensor.variable], variables.worlds[tensor.variable]
        holders: dict[int, list[int]] = {}
        for device in world.mesh:
            piece = world.mesh.piece(device, layout.axes)
            holders.setdefault(piece, []).append(world.first + device)
        for ranks in [[world.first]] if 0 in tensor.extents else holders.values():
            region = variables.region(tensor.variable, tensor.extents, ranks[0])
            begin = tuple(each.start for each in region)
            extents = tuple(each.stop - each.start for each in region)
            row_bytes = tensor.itemsize * prod(extents[1:])
            for first, rows in _cut(extents, row_bytes):
                rank = min(ranks, key=loads.__getitem__)
                loads[rank] += rows * row_bytes
                found.append(Slice(tensor, rank, begin, extents, first, rows))
    return found


def _cut(extents: Sequence[int], row_bytes: int) -> list[tuple[int, int]]:
    """Runs of rows of a shard, by their first row and their number."""
    if 0 in extents or not extents:
        return [(0, extents[0] if extents else 1)]
    step = _ALIGNED_BYTES // gcd(_ALIGNED_BYTES, row_bytes)
    most = max(step, _SLICE_BYTES // row_bytes // step * step)
    return [(first, min(most, extents[0] - first)) for first in range(0, extents[0], most)]


def parts_of(slices: Sequence[Slice], has_values: bool, present: int) -> list[Part]:
    """The contents of each file. Their number differs from that of the files that are present.

    Args:
        slices: of all ranks.
        has_values: whether the first rank writes values beside them.
        present: the number of files of the checkpoint that is overwritten; 0 for none.
    """
    by_rank: dict[int, list[Slice]] = {0: []} if has_values else {}
    for each in slices:
        by_rank.setdefault(each.rank, []).append(each)
    parts = [Part(rank, by_rank[rank]) for rank in sorted(by_rank)]
    if len(parts) != present:
        return parts
    longest = max(parts, key=lambda part: len(part.slices)).slices
    if len(longest) == 1 and longest[0].rows > 1:
        longest[:] = longest[0].halves()
    if len(longest) > 1:
        last = longest.pop()
        return [*parts, Part(last.rank, [last])]
    return [*parts, Part(0, [])]


def groups_of(saved: Sequence[SavedTensor]) -> list[list[SavedTensor]]:
    """Variables that are read together: small ones, since others may be stored whole."""
    groups: list[list[SavedTensor]] = []
    most = 0
    for tensor in saved:
        bytes_ = prod(tensor.shape) * tensor.itemsize
        if not groups or most + bytes_ > _SLICE_BYTES:
            groups.append([])
            most = 0
        groups[-1].append(tensor)
        most += bytes_
    return groups
