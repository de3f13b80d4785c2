"""The search region: the costs of strategies that would be better than every known one.

A strategy that no point of a frontier equals or beats in both costs lies below one of the
frontier's local upper bounds (Klamroth, Lacour and Vanderpooten, "On the representation of the
search region in multi-objective optimization", 2015): less memory than point i, and less time than
point i - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.search.tolerances import ROUNDING

__all__ = ["SearchRegion", "Weights"]

Weights = tuple[float, float]
"""Weights of a nanosecond and of a byte; a strategy's weighted cost is time and memory times these.
"""


@dataclass(frozen=True, slots=True, eq=False)
class SearchRegion:
    """Local upper bounds, which are the corners of the region.

    Attributes:
        memory, time: float64[corners], by ascending memory; infinite where they do not limit.
    """

    memory: Float64Array
    time: Float64Array

    @classmethod
    def beside(cls, memory: Int64Array, time: Int64Array) -> SearchRegion:
        """The region that a frontier's points, int64[points] each, leave open.

        It has a corner more than the frontier has points.
        """
        return cls(
            np.append(memory.astype(np.float64), np.inf),
            np.insert(time.astype(np.float64), 0, np.inf),
        )

    @classmethod
    def below(cls, memory: Int64Array, time: Int64Array, epsilon: float = 0.0) -> SearchRegion:
        """The region in which no point of a frontier is as good in both costs, or within 1 +
        ``epsilon``.

        Args:
            memory, time: int64[points] of the frontier.
            epsilon: at least 0.
        """
        if epsilon:
            return cls.beside(memory, time).shrunk(epsilon)
        return cls.beside(memory - 1, time - 1)  # the least difference of integers

    def shrunk(self, epsilon: float) -> SearchRegion:
        """The region of strategies better than a corner by more than a factor of 1 + epsilon."""
        return SearchRegion(self.memory / (1 + epsilon), self.time / (1 + epsilon))

    def take(self, corners: BoolArray) -> SearchRegion:
        """The region below some of the corners."""
        return SearchRegion(self.memory[corners], self.time[corners])

    def has(self, corners: SearchRegion) -> BoolArray:
        """bool[corners of another region], whether each lies below a corner of this one."""
        is_below = np.zeros(corners.memory.size, dtype=np.bool_)
        for memory, time in zip(self.memory, self.time, strict=True):
            is_below |= (corners.memory <= memory) & (corners.time <= time)
        return is_below

    def limits(self, weights: Sequence[Weights]) -> Float64Array:
        """float64[corners, weights], the highest weighted cost of strategies below each corner, but
        for roundings."""
        pairs = np.array(weights, dtype=np.float64).reshape(-1, 2)
        with np.errstate(invalid="ignore"):  # 0 times infinity
            of_time = np.where(pairs[:, 0] > 0, np.multiply.outer(self.time, pairs[:, 0]), 0.0)
            of_memory = np.where(pairs[:, 1] > 0, np.multiply.outer(self.memory, pairs[:, 1]), 0.0)
        limits: Float64Array = (of_time + of_memory) * (1.0 + ROUNDING)
        return limits
