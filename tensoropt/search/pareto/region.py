"""The search region: where a strategy can lie that is better than every known one.

A strategy that no point of a frontier is as good as in both costs lies below one of the frontier's
local upper bounds (Klamroth, Lacour and Vanderpooten, "On the representation of the search region
in multi-objective optimization", 2015): less memory than point i, and less time than point i - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array

__all__ = ["SearchRegion", "Weights"]

Weights = tuple[float, float]
"""Of a nanosecond and of a byte: a strategy's weighted cost is their scalar product with it."""

# More than any memory or time, whose sums are at most 2**61, and finite: 0 times it is 0.
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
    def below(
        cls, memory: Int64Array, time: Int64Array, epsilon: float = 0.0, *, less: int = 1
    ) -> SearchRegion:
        """Where no point of a frontier is as good in both costs, or within 1 + ``epsilon``.

        Args:
            memory, time: int64[points] of the frontier.
            epsilon: at least 0.
            less: by how much at least a better cost is less: 1 for integers, 0 to compare factors.
        """
        less = 0 if epsilon else less
        bound_memory = (memory.astype(np.float64) - less) / (1 + epsilon)
        bound_time = (time.astype(np.float64) - less) / (1 + epsilon)
        return cls.at(np.append(bound_memory, np.inf), np.insert(bound_time, 0, np.inf))

    @classmethod
    def at(cls, memory: Float64Array, time: Float64Array) -> SearchRegion:
        """Below some local upper bounds, infinite where they do not limit, by ascending memory."""
        return cls(np.minimum(memory, _UNLIMITED), np.minimum(time, _UNLIMITED))

    def limits(self, weights: Sequence[Weights]) -> Float64Array:
        """float64[local upper bounds, weights], the weighted cost of each: what is below it costs
        less."""
        per_nanosecond, per_byte = np.array(weights, dtype=np.float64).reshape(-1, 2).T
        found: Float64Array = np.multiply.outer(self.time, per_nanosecond)
        found += np.multiply.outer(self.memory, per_byte)
        return found
