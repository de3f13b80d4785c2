"""Contiguous buffers: fresh ones, and the shards of an array laid out one after another."""

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

# TensorFlow takes a buffer without copying it if it starts at a multiple of this.
_ALIGNMENT_BYTES = 64


class Usage:
    """Counts the bytes of fresh buffers, which no allocator of TensorFlow's knows.

    Attributes:
        bytes: in use now, by whoever got them.
        peak_bytes: the most in use since `reset`.
        changed: called with the bytes of each buffer that is made, and less than 0 when it goes.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.peak_bytes = 0
        self.changed: Callable[[int], None] | None = None
        self._lock = threading.RLock()  # a buffer may go while another is counted

    def add(self, buffer: Bytes) -> None:
        """Count a buffer until nothing refers to it."""
        with self._lock:
            self.bytes += buffer.nbytes
            self.peak_bytes = max(self.peak_bytes, self.bytes)
            self._say(buffer.nbytes)
        weakref.finalize(buffer, self._remove, buffer.nbytes).atexit = False

    def reset(self) -> None:
        """Start the peak from what is in use."""
        self.peak_bytes = self.bytes

    def _remove(self, count: int) -> None:
        with self._lock:
            self.bytes -= count
            self._say(-count)

    def _say(self, change: int) -> None:
        if self.changed is not None:
            self.changed(change)


usage = Usage()
"""Of this process."""


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised contiguous array that starts at a multiple of 64 bytes."""
    size_bytes = prod(shape) * dtype.itemsize
    raw = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    usage.add(raw)
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[start : start + size_bytes].view(dtype).reshape(shape)


def fresh_copy(array: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """A contiguous copy, converted to ``dtype`` where that is given."""
    copy = fresh(array.shape, dtype or array.dtype)
    copy[...] = array
    return copy


def contiguous(array: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """The array itself if it is contiguous and of this dtype, else a fresh copy that is."""
    if array.flags.c_contiguous and (dtype is None or array.dtype == dtype):
        return array
    return fresh_copy(array, dtype)


def check_movable(dtype: np.dtype[Any]) -> None:
    """Raises DTypeError if an element is a Python object, which has no bytes to move."""
    if dtype.hasobject:
        raise DTypeError(
            "only elements of a fixed size travel between processes. Got Python objects (that is "
            "how TensorFlow hands over strings): encode them as numbers first."
        )


def as_bytes(array: Array) -> Bytes:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def dimension(dim: int, rank: int) -> int:
    """``dim`` counted from the front, of an array with ``rank`` dimensions.

    Raises:
        ShapeError: if there is no such dimension.
    """
    if not -rank <= dim < rank:
        raise ShapeError(
            f"a dimension of an array with {rank} dimensions lies in [{-rank}, {rank}). Got {dim}."
        )
    return dim % rank


def split(array: Array, dim: int, shards: int) -> Array:
    """The equal shards of ``array`` along ``dim`` as one array [shards, *shape of a shard].

    It is a view, seldom contiguous.

    Raises:
        ShapeError: if the dimension does not divide.
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

    Without a copy where only dimensions of size 1 come before ``dim``.
    """
    count, *shard = shards.shape
    shape = (*shard[:dim], count * shard[dim], *shard[dim + 1 :])
    if prod(shard[:dim]) == 1:
        return shards.reshape(shape)
    joined = fresh((*shard[:dim], count, *shard[dim:]), shards.dtype)
    joined[...] = np.moveaxis(shards, 0, dim)
    return joined.reshape(shape)


def concatenated_alone(shard: Array, dim: int, count: int) -> Array:
    """``count`` shards concatenated along ``dim`` where no byte has to travel for it: the shard's
    copy for one, an empty array for several empty ones."""
    if count == 1:
        return fresh_copy(shard)
    return fresh(
        (*shard.shape[:dim], shard.shape[dim] * count, *shard.shape[dim + 1 :]), shard.dtype
    )
