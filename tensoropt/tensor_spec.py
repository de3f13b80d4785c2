"""The shape, element type and constant value of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import numpy.typing as npt

__all__ = ["TensorSpec"]


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """The facts about a tensor that are known before a step runs.

    Attributes:
        shape: the global shape. An extent of -1 is open: it is known only in a run, such as that of
            Unique's output.
        dtype: TensorFlow's name of the element type, such as "float32".
        value: the tensor itself, if it is a constant or follows from shapes.
    """

    shape: tuple[int, ...]
    dtype: str
    value: npt.NDArray[np.generic] | None = None

    @property
    def elements(self) -> int:
        """The number of elements, where an open extent counts as 1."""
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
