"""The index of a part that TensorFlow has written, for parts with the same tensors and new values.

An index is a table of LevelDB: blocks of entries, then a block of the blocks' places. The value of
an entry is a protocol buffer (``BundleEntryProto``) with a tensor's place in the data file and the
checksum of its bytes. A part with the same tensors has the same index but for the checksums.
Checksums are CRC32C, stored masked, as LevelDB does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensoropt.tensorflow_private import BundleEntryProto

__all__ = ["PartIndex"]

_FOOTER_BYTES = 48  # at the end of a table
_TRAILER_BYTES = 5  # after a block: the kind of compression, and the checksum of block and kind
_CHECKSUM_TAG = 0x35  # before the checksum at the end of an entry: field 6, of four bytes
_CHECKSUM_BYTES = 4
_MASK = 0xA282EAD8  # which LevelDB adds

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PartIndex:
    """The index of a part.

    Attributes:
        offsets: the places of the tensors in the data file, one after another.
    """

    offsets: Array
    _content: Array
    _blocks: list[tuple[int, int]]
    _filled: list[int]  # the numbers of the tensors that are not empty
    _places: Array  # of their checksums

    @classmethod
    def of(cls, content: bytes, names: Sequence[str], sizes: Sequence[int]) -> PartIndex | None:
        """Return the index of a part; None if it has another form than versions of TensorFlow give.

        Args:
            content: the index that TensorFlow has written.
            names: the names of the tensors, in the order in which they were given to ``SaveV2``.
            sizes: the bytes of the tensors.
        """
        blocks = list(_blocks(content))
        if any(content[end] for _, end in blocks):  # The block is compressed.
            return None
        entries = [entry for block in blocks for entry in _entries(content, *block)]
        placed = sorted(filter(None, map(_placed, entries)), key=lambda entry: entry.offset)
        filled = [number for number, size in enumerate(sizes) if size]
        offsets = np.cumsum([0, *sizes])[:-1]
        if [(entry.offset, entry.size) for entry in placed] != [
            (offsets[number], sizes[number]) for number in filled
        ]:
            return None
        pairs = zip(filled, placed, strict=True)
        if not all(entry.is_of(names[number]) for number, entry in pairs):
            return None
        places = np.array([entry.end - _CHECKSUM_BYTES for entry in placed], np.int64)
        return cls(offsets, np.frombuffer(content, np.uint8), blocks, filled, places)

    def with_checksums(self, checksums: Array, checksum_of: Callable[[Array], int]) -> bytes:
        """Return the index of a part with other values.

        Args:
            checksums: the checksum of each tensor's bytes, not masked.
            checksum_of: returns the checksum of some bytes, not masked.
        """
        content = self._content.copy()
        bytes_ = np.arange(_CHECKSUM_BYTES)
        content[self._places[:, None] + bytes_] = _masked(checksums[self._filled])
        for start, end in self._blocks:
            of_block = checksum_of(content[start : end + 1])
            content[end + 1 + bytes_] = _masked(np.array([of_block], np.uint32))[0]
        return content.tobytes()


class _Placed(NamedTuple):
    """The entry of a tensor with bytes in the data file."""

    key: bytes
    value: bytes
    end: int
    offset: int
    size: int

    def is_of(self, name: str) -> bool:
        """Whether it is the entry of a tensor of a name, or of a slice of it, with a checksum."""
        return name.encode() in self.key and self.value[-1 - _CHECKSUM_BYTES] == _CHECKSUM_TAG


def _placed(entry: tuple[bytes, bytes, int]) -> _Placed | None:
    """Return an entry of the table as that of a tensor; None if it has no bytes."""
    key, value, _ = entry
    if not key:  # the header
        return None
    proto = BundleEntryProto.FromString(value)
    # Without a size it is of an empty tensor, or of one whose slices have entries of their own.
    return _Placed(*entry, proto.offset, proto.size) if proto.size else None


def _blocks(content: bytes) -> Iterator[tuple[int, int]]:
    """The first byte and the end of each block of entries."""
    at = len(content) - _FOOTER_BYTES
    _, at = _number(content, at)  # the place of a block that is not used
    _, at = _number(content, at)
    start, at = _number(content, at)
    size, _ = _number(content, at)
    for _, place, _ in _entries(content, start, start + size):
        first, at = _number(place, 0)
        size, _ = _number(place, at)
        yield first, first + size


def _entries(content: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes, int]]:
    """The key, value and end of each entry of a block. A key repeats bytes of the key before."""
    (restarts,) = struct.unpack_from("<I", content, end - 4)
    key, at = b"", start
    while at < end - 4 * (restarts + 1):
        shared, at = _number(content, at)
        added, at = _number(content, at)
        size, at = _number(content, at)
        key = key[:shared] + content[at : at + added]
        at += added + size
        yield key, content[at - size : at], at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and the place after it."""
    number, shift = 0, 0
    while content[at] > 127:
        number |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | content[at] << shift, at + 1


def _masked(checksums: Array) -> Array:
    """Return the bytes of each checksum as an index has them."""
    turned = checksums >> np.uint32(15) | checksums << np.uint32(17)
    return (turned + np.uint32(_MASK)).astype("<u4").view(np.uint8).reshape(-1, _CHECKSUM_BYTES)
