"""Arrays that planning counts with: their types, and where rows of a flat array begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BoolArray",
    "Float64Array",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "offsets_of",
]

BoolArray: TypeAlias = npt.NDArray[np.bool_]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]


def offsets_of(sizes: Sequence[int] | Int64Array) -> Int64Array:
    """int64[rows + 1]: where each row begins when rows of these sizes follow one another, and where
    the last ends."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
