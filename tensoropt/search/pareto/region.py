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

from tensoropt.arrays import Float64Array, Int64Array

__all__ = ["SearchRegion", "Weights"]

Weights = tuple[float, float]
"""Weights of a nanosecond and of a byte; a strategy's weighted cost is time and memory times these.
"""

# More than any memory or time, whose sums are at most 2**61. It is finite, so that 0 times it is 0.
_UNLIMITED = 1e19


@dataclass(frozen=True, slots=True, eq=False)
class SearchRegion:
    """Local upper bounds.

    Attributes:
        memory, time: float64[local upper bounds], by ascending memory.
    """

    memory: Float64Array
    time: Float64Array

    @classmethod
    def below(cls, memory: Int64Array, time: Int64Array, epsilon: float = 0.0) -> SearchRegion:
        """The region in which no point of a frontier is as good in both costs, or within 1 +
        ``epsilon``.

        Args:
            memory, time: int64[points] of the frontier.
            epsilon: at least 0.
        """
        less = 0 if epsilon else 1  # the least difference of integers
        bound_memory = (memory.astype(np.float64) - less) / (1 + epsilon)
        bound_time = (time.astype(np.float64) - less) / (1 + epsilon)
        return cls.at(np.append(bound_memory, np.inf), np.insert(bound_time, 0, np.inf))

    @classmethod
    def at(cls, memory: Float64Array, time: Float64Array) -> SearchRegion:
        """The region below some local upper bounds, by ascending memory; infinite ones do not
        limit."""
        return cls(np.minimum(memory, _UNLIMITED), np.minimum(time, _UNLIMITED))

    def limits(self, weights: Sequence[Weights]) -> Float64Array:
        """float64[local upper bounds, weights], the weighted cost of each; strategies below cost
        less."""
        per_nanosecond, per_byte = np.array(weights, dtype=np.float64).reshape(-1, 2).T
        limits: Float64Array = np.multiply.outer(self.time, per_nanosecond)
        limits += np.multiply.outer(self.memory, per_byte)
        return limits
