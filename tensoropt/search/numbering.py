"""Numbers for what is alike, so that what is done with it again and again is done once."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = ["Numbering"]


class Numbering:
    """Equal numbers for equal things, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # An array's elements are read once; it is held, so that no other gets its id.
        self._arrays: dict[int, tuple[Int64Array, int]] = {}

    def of(self, *what: Hashable | Int64Array) -> int:
        """The number of all that is equal to this; of arrays, which nobody changes, by elements."""
        key = tuple(self._array(each) if isinstance(each, np.ndarray) else each for each in what)
        return self._numbers.setdefault(key, len(self._numbers))

    def _array(self, array: Int64Array) -> int:
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, self.of(array.tobytes())
        return self._arrays[id(array)][1]
