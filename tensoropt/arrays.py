"""Types of the arrays that planning computes with, and offsets of rows in a flat array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensoropt.kernel_folder import find_kernel_folder

__all__ = [
    "BoolArray",
    "Float64Array",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "offsets_of",
]

find_kernel_folder()  # here, because every module with kernels imports this one

BoolArray: TypeAlias = npt.NDArray[np.bool_]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]


def offsets_of(sizes: Sequence[int] | Int64Array) -> Int64Array:
    """The offsets, int64[rows + 1], of rows of these sizes that are stored one after another.

    The last offset is the end of the last row.
    """
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
