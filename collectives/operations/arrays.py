"""`collectives.operations.operation.Elements` of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.buffers import Array, fresh

__all__ = ["extent", "itself", "ones_like", "padded", "part", "reshaped", "selected", "zeros_like"]

ones_like, zeros_like = np.ones_like, np.zeros_like


def itself(x: Array) -> Array:
    """The array."""
    return x


def extent(x: Array, dim: int) -> int:
    """The size of a dimension."""
    return int(x.shape[dim])


def part(x: Array, dim: int, elements: slice) -> Array:
    """A view of some elements along a dimension."""
    return x[(slice(None),) * dim + (elements,)]


def selected(x: Array, dim: int, ranges: Sequence[tuple[int, int]]) -> Array:
    """The elements of ranges along a dimension: a view of one range, a fresh array of several."""
    parts = [part(x, dim, slice(*each)) for each in ranges]
    if len(parts) == 1:
        return parts[0]
    extent = sum(end - start for start, end in ranges)
    result = fresh((*x.shape[:dim], extent, *x.shape[dim + 1 :]), x.dtype)
    return np.concatenate(parts, dim, out=result)


def padded(x: Array, dim: int, before: int, size: int, fill: float = 0) -> Array:
    """A fresh array of ``size`` along a dimension, with ``x`` after ``before`` elements."""
    result = fresh((*x.shape[:dim], size, *x.shape[dim + 1 :]), x.dtype)
    end = before + x.shape[dim]
    part(result, dim, slice(0, before))[...] = fill
    part(result, dim, slice(before, end))[...] = x
    part(result, dim, slice(end, size))[...] = fill
    return result


def reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape: a view where they lie one after another."""
    return x.reshape(shape)
