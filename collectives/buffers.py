"""Contiguous arrays for collectives: allocation, splitting into shards, and joining of shards."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from collectives.errors import DTypeError, ShapeError

__all__ = [
    "Array",
    "Bytes",
    "Usage",
    "as_bytes",
    "check_movable",
    "concatenated_alone",
    "contiguous",
    "dimension",
    "fresh",
    "fresh_copy",
    "join",
    "split",
    "usage",
]

Array: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]

# TensorFlow takes a buffer without a copy if its address is a multiple of this number.
_ALIGNMENT_BYTES = 64


class Usage:
    """Counts the bytes of fresh buffers, which TensorFlow's allocators do not count.

    Attributes:
        bytes: bytes in use now.
        peak_bytes: the most bytes in use since `reset`.
        changed: called with the size of each new buffer, and with the negative size when the buffer
            is freed.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.peak_bytes = 0
        self.changed: Callable[[int], None] | None = None
        self._lock = threading.RLock()  # a buffer may be freed while another is counted

    def add(self, buffer: Bytes) -> None:
        """Count a buffer until the last reference to it is gone."""
        with self._lock:
            self.bytes += buffer.nbytes
            self.peak_bytes = max(self.peak_bytes, self.bytes)
            self._say(buffer.nbytes)
        weakref.finalize(buffer, self._remove, buffer.nbytes).atexit = False

    def reset(self) -> None:
        """Set the peak to the bytes in use now."""
        self.peak_bytes = self.bytes

    def _remove(self, count: int) -> None:
        with self._lock:
            self.bytes -= count
            self._say(-count)

    def _say(self, change: int) -> None:
        if self.changed is not None:
            self.changed(change)


usage = Usage()
"""The fresh buffers of this process."""


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised contiguous array that starts at a multiple of 64 bytes."""
    size_bytes = prod(shape) * dtype.itemsize
    raw = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    usage.add(raw)
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[start : start + size_bytes].view(dtype).reshape(shape)


def fresh_copy(array: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """A contiguous copy, converted to ``dtype`` if one is given."""
    copy = fresh(array.shape, dtype or array.dtype)
    copy[...] = array
    return copy


def contiguous(array: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """The array itself if it is contiguous and has the dtype, otherwise a fresh copy that is."""
    if array.flags.c_contiguous and (dtype is None or array.dtype == dtype):
        return array
    return fresh_copy(array, dtype)


def check_movable(dtype: np.dtype[Any]) -> None:
    """Check that the elements have bytes to move.

    Raises:
        DTypeError: if the elements are Python objects.
    """
    if dtype.hasobject:
        raise DTypeError(
            "only elements of a fixed size travel between processes. Got Python objects "
            "(TensorFlow passes strings as objects): encode them as numbers first."
        )


def as_bytes(array: Array) -> Bytes:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def dimension(dim: int, rank: int) -> int:
    """``dim``, counted from the front, of an array with ``rank`` dimensions.

    Raises:
        ShapeError: if the array does not have the dimension.
    """
    if not -rank <= dim < rank:
        raise ShapeError(
            f"a dimension of an array with {rank} dimensions lies in [{-rank}, {rank}). Got {dim}."
        )
    return dim % rank


def split(array: Array, dim: int, shards: int) -> Array:
    """The equal shards of ``array`` along ``dim`` as one array [shards, *shape of a shard].

    The result is a view, which is contiguous only if ``dim`` is the first dimension.

    Raises:
        ShapeError: if the size of the dimension is no multiple of the number of shards.
    """
    length, rest = divmod(array.shape[dim], shards)
    if rest:
        raise ShapeError(
            "a dimension that a collective splits divides by the size of the group. Got size "
            f"{array.shape[dim]} of dimension {dim} for {shards} ranks: pad it."
        )
    shape = (*array.shape[:dim], shards, length, *array.shape[dim + 1 :])
    return np.moveaxis(array.reshape(shape), dim, 0)


def join(shards: Array, dim: int) -> Array:
    """The inverse of `split`: [shards, *shape of a shard] concatenated along ``dim``, contiguous.

    Nothing is copied if all dimensions before ``dim`` have size 1.
    """
    count, *shard = shards.shape
    shape = (*shard[:dim], count * shard[dim], *shard[dim + 1 :])
    if prod(shard[:dim]) == 1:
        return shards.reshape(shape)
    joined = fresh((*shard[:dim], count, *shard[dim:]), shards.dtype)
    joined[...] = np.moveaxis(shards, 0, dim)
    return joined.reshape(shape)


def concatenated_alone(shard: Array, dim: int, count: int) -> Array:
    """The concatenation of ``count`` shards along ``dim`` where no byte has to travel.

    For one shard that is its copy, for several empty shards an empty array.
    """
    if count == 1:
        return fresh_copy(shard)
    return fresh(
        (*shard.shape[:dim], shard.shape[dim] * count, *shard.shape[dim + 1 :]), shard.dtype
    )
