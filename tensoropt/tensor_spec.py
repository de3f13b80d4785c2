"""The shape, type and constant value of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import numpy.typing as npt

__all__ = ["TensorSpec"]


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """What is known of a tensor before anything runs.

    Attributes:
        shape: the global shape; -1 for a dimension that only a run decides, such as Unique's.
        dtype: TensorFlow's name of the element type, such as "float32".
        value: the tensor itself where it is a constant or follows from shapes alone.
    """

    shape: tuple[int, ...]
    dtype: str
    value: npt.NDArray[np.generic] | None = None

    @property
    def elements(self) -> int:
        """Number of elements; what only a run decides counts as one."""
        return prod(n for n in self.shape if n >= 0)

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for handles and strings, which have no fixed size."""
        return _itemsize(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.elements * self.itemsize


@cache
def _itemsize(dtype: str) -> int:
    name = dtype.removesuffix("_ref")
    if name == "bfloat16":
        return 2
    try:
        return np.dtype(name).itemsize
    except TypeError:
        return 0
